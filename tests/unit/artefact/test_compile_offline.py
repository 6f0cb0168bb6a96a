"""Triton and ptxas on validated programs, without a GPU: figures, refusals, deadlines, and nothing left behind."""

from __future__ import annotations

import dataclasses
import time
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from artefact_programs import HONEST, ONE, accepted, edited, judge, relu, spec, tile, workload
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton as plgpu

from pallas_evo.artefact import at_hand, compile_offline, compile_offline_many, compiling
from pallas_evo.artefact.architectures import ARCHITECTURES, occupancy
from pallas_evo.errors import ConfigError
from pallas_evo.types import Artefact, Compiled, Rejection

pytestmark = pytest.mark.skipif(find_spec("triton") is None, reason="the `ptx` extra is not installed")


def matmul(block: int, stages: int = 3) -> Artefact:
    """A product whose tiles are (block, block): shared memory grows with its square and with the stages."""
    size = 512

    def body(x_ref: Any, y_ref: Any, o_ref: Any) -> None:
        rows, cols = jnp.arange(block)[:, None], jnp.arange(block)[None, :]

        def step(i: jax.Array, total: jax.Array) -> jax.Array:
            x = plgpu.load(x_ref.at[rows, i * block + cols])
            y = plgpu.load(y_ref.at[i * block + rows, cols])
            return total + jnp.dot(x, y)

        total = lax.fori_loop(0, size // block, step, jnp.zeros((block, block), jnp.float32))
        plgpu.store(o_ref.at[rows, cols], total)

    function = pl.pallas_call(
        body,
        grid=(1,),
        out_shape=jax.ShapeDtypeStruct((size, size), jnp.float32),
        compiler_params=plgpu.CompilerParams(num_warps=8, num_stages=stages),
    )
    return accepted(judge(function, workload(spec(size, size), spec(size, size), output=spec(size, size))))


def test_every_honest_program_compiles_for_both_generations() -> None:
    artefacts = [accepted(judge(function, task)) for function, task in HONEST.values()]
    found = compile_offline_many(artefacts, ["sm_80", "sm_90"], 60.0)
    for name, figures in zip(HONEST, found, strict=True):
        for sm, result in figures.items():
            assert isinstance(result, Compiled), (name, result)
            assert result.sm == sm
            assert 0 < result.registers <= 255
            assert result.spill_bytes == 0
            assert 0 < result.occupancy <= 1
            assert result.ptx_bytes > 500
            assert result.seconds > 0


def test_shared_memory_is_reported_and_held_against_the_architecture() -> None:
    small, large = matmul(32, stages=2), matmul(128, stages=3)
    first, second = compile_offline_many([small, large], ["sm_80"], 120.0)
    fits, over = first["sm_80"], second["sm_80"]
    assert isinstance(fits, Compiled)
    assert 0 < fits.shared_bytes <= ARCHITECTURES["sm_80"].shared_block_bytes == 166_912
    assert isinstance(over, Rejection)
    assert over.reason == "shared_memory"
    assert "166912" in over.message
    assert "num_stages=3" in over.message


def test_the_deadline_ends_the_compiler_whole() -> None:
    started = time.monotonic()
    found = compile_offline(matmul(128, stages=4), "sm_80", 0.05)
    assert time.monotonic() - started < 20
    assert isinstance(found, Rejection)
    assert found.reason == "compile_timeout"
    assert "0.05 s" in found.message


def test_a_compiler_error_is_a_sentence() -> None:
    artefact = accepted(judge(relu))
    (kernel,) = artefact.kernels
    # Validated programs seldom fail here; one is made to.
    bad = edited(
        kernel.ttir,
        "    tt.return",
        "    %z = tt.load %arg0 : !tt.ptr<f32>\n"
        '    %e = tt.extern_elementwise %z {libname = "", libpath = "", pure = true, symbol = "__nv_none"}'
        " : (f32) -> f32\n"
        "    tt.store %arg1, %e : !tt.ptr<f32>\n    tt.return",
    )
    found = compile_offline(
        dataclasses.replace(artefact, kernels=(dataclasses.replace(kernel, ttir=bad),)), "sm_80", 60.0
    )
    assert isinstance(found, Rejection)
    assert found.reason == "compile_error"
    assert "Unresolved extern function '__nv_none'" in found.message
    assert "/" not in found.message.replace("and/or", "")


def test_ir_that_this_triton_cannot_read_is_not_the_candidates_fault() -> None:
    artefact = accepted(judge(relu))
    (kernel,) = artefact.kernels
    foreign = edited(kernel.ttir, "    tt.return", '    "tt.of_the_future"() : () -> ()\n    tt.return')
    assert (
        compile_offline(
            dataclasses.replace(artefact, kernels=(dataclasses.replace(kernel, ttir=foreign),)), "sm_80", 60.0
        )
        is None
    )


def test_a_crash_costs_one_result(monkeypatch: pytest.MonkeyPatch) -> None:
    artefact = accepted(judge(relu))
    worker = compiling.start_compiler()
    assert worker is not None
    worker.ready()
    worker.interrupt()
    first, second = compile_offline_many([artefact, artefact], ["sm_80"], 60.0, worker=worker)
    assert isinstance(first["sm_80"], Rejection)
    assert first["sm_80"].reason == "compile_error"
    assert isinstance(second["sm_80"], Compiled)


def test_without_the_extra_nothing_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiling, "find_spec", lambda name: None)
    assert compile_offline(accepted(judge(relu)), "sm_80", 60.0) is None


def test_an_unknown_architecture_is_named() -> None:
    with pytest.raises(ConfigError, match="sm_12345"):
        compile_offline(accepted(judge(relu)), "sm_12345", 60.0)


def test_nothing_is_cached_in_the_home_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert isinstance(
        compile_offline(accepted(judge(tile(lambda x, o: o.__setitem__(..., x[...] + 3.0)), ONE)), "sm_80", 60.0),
        Compiled,
    )
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("sm", "registers", "shared", "warps", "expected"),
    [
        ("sm_80", 32, 0, 4, 1.0),
        ("sm_80", 255, 0, 4, 8 / 64),
        ("sm_80", 32, 163 << 10, 4, 4 / 64),
        ("sm_86", 32, 0, 4, 1.0),
        ("sm_90", 168, 100_000, 8, 8 / 64),
        ("sm_80", 32, 0, 1, 0.5),
    ],
)
def test_occupancy(sm: str, registers: int, shared: int, warps: int, expected: float) -> None:
    assert occupancy(ARCHITECTURES[sm], registers, shared, warps) == expected


def test_auto_is_the_gpu_at_hand_once_and_nothing_without_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(at_hand, "architecture_at_hand", lambda: "sm_90")
    assert at_hand.resolve(["sm_80", "auto"]) == ["sm_80", "sm_90"]
    assert at_hand.resolve(["auto", "sm_90"]) == ["sm_90"]
    (found,) = compile_offline_many([accepted(judge(relu))], ["auto"], 60.0)
    assert set(found) == {"sm_90"}
    monkeypatch.setattr(at_hand, "architecture_at_hand", lambda: None)
    assert at_hand.resolve(["sm_80", "auto"]) == ["sm_80"]
    assert compile_offline_many([accepted(judge(relu))], ["auto"], 60.0) == [{}]


@pytest.mark.parametrize("visible", ["", "-1", "17", "GPU-nonsense"])
def test_no_gpu_is_at_hand_where_none_is_visible(visible: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    at_hand.architecture_at_hand.cache_clear()
    assert at_hand.architecture_at_hand() is None
    at_hand.architecture_at_hand.cache_clear()


def test_ptx_is_given_where_asked_for_and_is_the_same_each_time() -> None:
    """It is stored by its content, so it names no folder of this compilation."""
    artefact = accepted(judge(relu))
    taken: list[dict[tuple[str, str], tuple[str, ...]]] = [{}, {}]
    for ptx in taken:
        found = compile_offline_many([artefact], ["sm_80"], 60.0, ptx=ptx)[0]["sm_80"]
        assert isinstance(found, Compiled)
        assert sum(map(len, ptx[artefact.workload.label, "sm_80"])) == found.ptx_bytes
    assert taken[0] == taken[1]
    (text,) = taken[0][artefact.workload.label, "sm_80"]
    assert ".target sm_80" in text
    assert "/" not in text.replace("//", "")
