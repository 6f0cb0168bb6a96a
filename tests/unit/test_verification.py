"""The rungs: what each says of a good program, and of programs that are wrong in one way each."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pallas_evo import verification
from pallas_evo.config import Config, Numerics
from pallas_evo.paths import seed_file
from pallas_evo.tasks import get_task, load_tasks, odd_dims
from pallas_evo.types import Artefact, Compiled, Rejection
from pallas_evo.verification import RUNGS, Rung, Verification, environment, workloads_of, worst_case

RELU = get_task("L1/relu")
SOURCE = seed_file("L1/relu").read_text()
FAST = ("trace", "lower", "numerics_cpu")


def climb(source: str, rungs: tuple[str, ...] = FAST, config: Config | None = None) -> dict[str, Rung]:
    return {rung.name: rung for rung in Verification(config).verify(RELU, source, rungs)}


@pytest.fixture(scope="module")
def good() -> dict[str, Rung]:
    return climb(SOURCE, RUNGS)


def test_a_good_seed_passes_what_this_machine_can_run(good: dict[str, Rung]) -> None:
    assert set(good) == set(RUNGS)
    for name in FAST:
        assert good[name].passed is True, good[name]


def test_trace_covers_every_size(good: dict[str, Rung]) -> None:
    assert list(good["trace"].details["sizes"]) == [
        "small",
        "medium",
        "large",
        "variant",
        "odd-1",
        "odd-2",
        "odd-3",
        "odd-4",
    ]


def test_lower_records_both_hashes_at_every_table_size(good: dict[str, Rung]) -> None:
    hashes = good["lower"].details["artefact_sha256"]
    assert list(hashes) == ["small", "medium", "large"]
    for size, both in hashes.items():
        assert both["A100"] == both["H100"] == good["trace"].details["sizes"][size]["sha256"]


def test_ptx_gives_figures_for_both_architectures(good: dict[str, Rung]) -> None:
    pytest.importorskip("triton")
    rung = good["ptx"]
    assert rung.passed is True, rung
    for size in ("small", "medium", "large"):
        for sm in ("sm_80", "sm_90"):
            figures = rung.details["sizes"][size][sm]
            assert figures["registers"] > 0
            assert figures["spill_bytes"] == 0
            assert figures["shared_bytes"] <= 163 << 10


def test_numerics_runs_small_twice_a_variant_and_every_odd_size(good: dict[str, Rung]) -> None:
    cases = good["numerics_cpu"].details["cases"]
    assert [case["size"] for case in cases] == ["small", "small", "variant", "odd-1", "odd-2", "odd-3", "odd-4"]
    assert len({case["input_seed"] for case in cases}) == 3
    assert [case["dims"] for case in cases[3:]] == list(odd_dims(RELU))
    assert all(case["normwise_error"] == 0.0 for case in cases)


def test_stress_is_run_where_the_task_has_it() -> None:
    task = next(one for one in load_tasks() if one.stress is not None and one.level == 1)
    rungs = Verification().verify(task, seed_file(task.id).read_text(), ["numerics_cpu"])
    (rung,) = [one for one in rungs if one.name == "numerics_cpu"]
    assert rung.passed is True, rung
    assert rung.details["cases"][-1]["size"] == "stress"


def test_without_a_gpu_its_rung_is_neither_passed_nor_failed(good: dict[str, Rung]) -> None:
    assert good["numerics_gpu"].passed is None
    assert good["numerics_gpu"].message == "no GPU here"


def test_without_triton_the_ptx_rung_is_neither(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verification, "find_spec", lambda name: None)
    (rung,) = Verification().verify(RELU, SOURCE, ["ptx"])
    assert rung.passed is None
    assert "not installed" in rung.message


def test_a_seed_that_cannot_be_traced_fails_there_and_reaches_nothing_else() -> None:
    rungs = climb("def kernel(x):\n    raise ValueError('no')\n")
    assert rungs["trace"].passed is False
    assert rungs["trace"].message.startswith("trace_error: ")
    assert [rungs[name].passed for name in ("lower", "numerics_cpu")] == [None, None]


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        (", mask=inside)\n\n", ")\n\n", "out_of_bounds"),
        ("jnp.maximum(x, 0.0)", "jnp.maximum(x, 1e-6)", "numerics"),
        ("pl.cdiv(m, BLOCK_M)", "max(m // BLOCK_M, 1)", "unwritten"),
    ],
)
def test_a_wrong_kernel_fails_numerics_and_says_where(old: str, new: str, reason: str) -> None:
    assert old in SOURCE
    rungs = climb(SOURCE.replace(old, new), ("numerics_cpu",))
    assert rungs["numerics_cpu"].passed is False
    assert f": {reason}: " in rungs["numerics_cpu"].message
    assert "odd-1 {'M': 127, 'N': 131}" in rungs["numerics_cpu"].message


def test_a_kernel_that_depends_on_the_process_fails_trace() -> None:
    drawn = SOURCE.replace("jnp.maximum(x, 0.0)", "jnp.maximum(x, float(id(object()) % 97))")
    rungs = climb(drawn)
    assert rungs["trace"].passed is False
    assert "nondeterministic_trace" in rungs["trace"].message


def test_a_kernel_that_asks_for_the_gpu_is_seen_by_lower() -> None:
    asks = "(1.0 if 'H100' in str(jax.sharding.get_abstract_mesh().abstract_device) else 0.0)"
    rungs = climb(SOURCE.replace("jnp.maximum(x, 0.0)", f"jnp.maximum(x, {asks})"))
    assert rungs["trace"].passed is True, rungs["trace"]
    assert rungs["lower"].passed is False
    assert "not the A100's" in rungs["lower"].message


def test_bounds_are_the_configured_ones() -> None:
    config = Config()
    config.judging.numerics = Numerics(f32_rtol=0.0, f32_atol_rms=0.0, normwise_floor=0.0, yardstick_factor=0.0)
    task = get_task("L1/tanh")
    rungs = Verification(config).verify(task, seed_file(task.id).read_text(), ["numerics_cpu"])
    (rung,) = [one for one in rungs if one.name == "numerics_cpu"]
    assert rung.passed is False, "no float32 tanh is exact everywhere"


FITS = Compiled(sm="sm_80", registers=32, spill_bytes=0, shared_bytes=1024, occupancy=1.0, ptx_bytes=100, seconds=0.1)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"spill_bytes": 8}, "8 bytes of registers spilled"),
        ({"shared_bytes": (163 << 10) + 1}, "shared memory"),
        ({"seconds": 5.1}, "5.1 s to compile"),
    ],
)
def test_a_compiled_program_over_a_bound_fails_ptx(
    monkeypatch: pytest.MonkeyPatch, change: dict[str, float], said: str
) -> None:
    over = replace(FITS, **change)  # type: ignore[arg-type]
    monkeypatch.setattr(
        "pallas_evo.artefact.compiling.compile_offline_many", lambda several, sms, s: [dict.fromkeys(sms, over)] * 3
    )
    monkeypatch.setattr("pallas_evo.artefact.compiling.compile_offline", lambda *a: over)
    rung = Verification()._ptx(_artefacts())
    assert rung.passed is False
    assert said in rung.message


def test_what_was_slow_on_a_busy_machine_gets_a_second_try(monkeypatch: pytest.MonkeyPatch) -> None:
    slow = replace(FITS, seconds=9.0)
    monkeypatch.setattr(
        "pallas_evo.artefact.compiling.compile_offline_many", lambda several, sms, s: [dict.fromkeys(sms, slow)] * 3
    )
    monkeypatch.setattr("pallas_evo.artefact.compiling.compile_offline", lambda *a: FITS)
    assert Verification()._ptx(_artefacts()).passed is True


def test_a_compiler_that_refuses_fails_ptx_and_one_that_cannot_read_is_not_run(monkeypatch: pytest.MonkeyPatch) -> None:
    answers: dict[str, Rejection | None] = {"it": Rejection(reason="compile_error", message="no.")}
    monkeypatch.setattr(
        "pallas_evo.artefact.compiling.compile_offline_many",
        lambda several, sms, s: [dict.fromkeys(sms, answers["it"])] * 3,
    )
    assert Verification()._ptx(_artefacts()).passed is False
    answers["it"] = None
    assert Verification()._ptx(_artefacts()).passed is None


def _artefacts() -> dict[str, Artefact]:
    return {
        size.label: Artefact(workload=size, module="", sha256="", kernels=(), moved_bytes=0)
        for size in workloads_of(RELU)
    }


@pytest.mark.parametrize("task", load_tasks(), ids=lambda task: task.id)
def test_sizes_are_the_same_each_time(task) -> None:
    sizes = workloads_of(task)
    assert sizes == workloads_of(task)
    assert [size.label for size in sizes[:4]] == ["small", "medium", "large", "variant"]
    assert len(sizes) == 8


def test_worst_case_is_the_one_nearest_its_bound() -> None:
    cases = [
        {"size": "a", "normwise_error": 1e-7, "bound": 1e-6},
        {"size": "b", "normwise_error": 1e-4, "bound": 1e-2},
        {"size": "c", "normwise_error": 9e-7, "bound": 1e-6},
        {"size": "d", "normwise_error": None, "bound": None},
        {"size": "e", "normwise_error": 0.0, "bound": 0.0},
    ]
    worst = worst_case(Rung(name="numerics_cpu", passed=True, details={"cases": cases}))
    assert worst is not None
    assert worst["size"] == "c"
    assert worst_case(Rung(name="numerics_cpu", passed=True)) is None


def test_environment_names_what_a_verdict_depends_on() -> None:
    here = environment(None)
    assert here == environment(None)
    assert {"pallas_evo", "jax", "jaxlib", "triton", "python", "code_sha256", "machine", "gpu", "jail"} <= set(here)
    assert here != environment("NVIDIA H200")


def test_other_code_is_another_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    before = environment(None)["code_sha256"]
    monkeypatch.setattr(verification, "_JUDGES", verification._JUDGES[:-1])
    assert environment(None)["code_sha256"] != before
