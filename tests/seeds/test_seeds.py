"""The 45 seeds: each file's contract, its program for both GPUs, and its values at small, odd and drawn sizes.

The registry is walked, so a 46th task without a seed fails here. Programs are exported in this process (seeds are our
own code), validated, and run by the executor: every access in bounds, every element written, values by the bounds that
candidates are held to. Jailed processes and compiling are the business of `python -m pallas_evo.seed` and its tests.
"""

from __future__ import annotations

import ast
import json
import re
import runpy
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

import jax
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from jax import export
from jax.experimental.pallas import triton as plgpu
from jax.sharding import AbstractDevice, AbstractMesh, AxisType

from pallas_evo.artefact import validate
from pallas_evo.config import ArtefactLimits, Numerics
from pallas_evo.judging.numerics import Comparison, compare
from pallas_evo.paths import SEEDS, original_file, seed_file
from pallas_evo.reasons import REASONS
from pallas_evo.running.executor import execute
from pallas_evo.tasks import dims_of, draw_inputs, load_tasks, odd_dims, reference64, workload, yardstick
from pallas_evo.tasks.shapes import extent
from pallas_evo.types import Artefact, Rejection, Task
from pallas_evo.verification import DEVICE_KINDS, TABLE_SIZES

TASKS = load_tasks()
ALLOWED_IMPORTS = {"jax", "numpy", "math", "functools", "itertools", "operator", "typing", "dataclasses"}
FORBIDDEN_CALLS = {"exec", "eval", "compile", "open", "__import__"}
DRAWN_LIMIT = 300  # of an extent that hypothesis draws: more than two blocks of every seed, and quick to run
OVER_A_WARP = st.sampled_from([2, 7, 31, 61, 97, 127, 131, 193, 251, 257])  # primes, and one over a power of two

each_task = pytest.mark.parametrize("task", TASKS, ids=lambda task: task.id)


def kernel_of(task: Task) -> Callable[..., Any]:
    return _kernel(task.id)


@cache
def _kernel(id: str) -> Callable[..., Any]:
    return runpy.run_path(str(seed_file(id)))["kernel"]


def artefact_of(task: Task, kernel: Callable[..., Any], dims: Mapping[str, int], gpu: str) -> Artefact:
    """The seed's validated program at a size, lowered for a GPU that need not be here."""
    size = workload(task, dims, "small")
    shapes = [jax.ShapeDtypeStruct(spec.shape, spec.dtype) for spec in size.inputs]
    device = AbstractDevice(device_kind=DEVICE_KINDS[gpu], platform="gpu", num_cores=None)
    mesh = AbstractMesh((1,), ("x",), axis_types=(AxisType.Auto,), abstract_device=device)
    call = getattr(plgpu, "CUSTOM_CALL_TARGET_NAME", "__gpu$xla.gpu.triton")
    check = export.DisabledSafetyCheck.custom_call(call)
    with jax.sharding.use_abstract_mesh(mesh):
        exported = export.export(jax.jit(kernel), platforms=["cuda"], disabled_checks=[check])(*shapes)
    artefact = validate(exported.mlir_module_serialized, size, ArtefactLimits())
    assert not isinstance(artefact, Rejection), (task.id, dict(dims), artefact)
    return artefact


def judged(
    task: Task, kernel: Callable[..., Any], dims: Mapping[str, int], seed: int = 0, *, stress: bool = False
) -> Comparison | Rejection:
    """What the executor and the numerics gate say at one size."""
    artefact = artefact_of(task, kernel, dims, "A100")
    inputs = draw_inputs(task, dims, np.random.default_rng(seed), stress=stress)
    done = execute(artefact.module, inputs, artefact.workload.output)
    if isinstance(done, Rejection):
        return done
    return compare(done.output, reference64(task, inputs), yardstick(task, inputs), task.precision, Numerics())


def assert_right(task: Task, dims: Mapping[str, int], seed: int = 0, *, stress: bool = False) -> None:
    said = judged(task, kernel_of(task), dims, seed, stress=stress)
    assert said.reason is None, (task.id, dict(dims), seed, said)


# ---- the file


def test_every_task_has_a_seed_and_every_seed_a_task() -> None:
    assert sorted(SEEDS.glob("level*/*.py")) == sorted(seed_file(task.id) for task in TASKS)


@each_task
def test_docstring_has_every_field(task: Task) -> None:
    source = seed_file(task.id).read_text(encoding="utf-8")
    docstring = ast.get_docstring(ast.parse(source))
    assert docstring is not None
    lines = docstring.splitlines()
    assert re.fullmatch(r"[A-Z].*\.", lines[0]), "a title that ends with a full stop"
    assert lines[1] == ""
    assert re.match("    .*=", lines[2]), "the formula, indented"
    at = lines.index("Inputs:")
    fields = lines[at + 1 : lines.index("Returns:")]
    described = {
        name: shape
        for names, _, shape in (line.partition(":") for line in fields if re.match(r"    \w", line))
        for name in names.strip().split(", ")
    }
    assert list(described) == [spec.name for spec in task.inputs]
    for spec in task.inputs:
        assert spec.dtype in described[spec.name], spec
        assert all(str(entry) in described[spec.name] for entry in spec.shape), spec
    returned = lines[lines.index("Returns:") + 1]
    assert f"{task.output_dtype}, {task.precision}" in returned
    assert any(line.startswith(f"Task: {task.id}. Origin: ") for line in lines)
    assert lines[-1] == "SPDX-License-Identifier: Apache-2.0"


@each_task
def test_text_is_plain(task: Task) -> None:
    source = seed_file(task.id).read_text(encoding="utf-8")
    assert "```" not in source
    assert max(map(len, source.splitlines())) <= 120
    assert source.endswith("\n")
    assert "\t" not in source


@each_task
def test_one_block_with_constants_first_and_a_kernel_inside(task: Task) -> None:
    source = seed_file(task.id).read_text(encoding="utf-8")
    lines = source.splitlines()
    assert lines.count("# EVOLVE-BLOCK-START") == lines.count("# EVOLVE-BLOCK-END") == 1
    assert source.count("EVOLVE-BLOCK-") == 2
    start, end = lines.index("# EVOLVE-BLOCK-START") + 1, lines.index("# EVOLVE-BLOCK-END") + 1
    tree = ast.parse(source)
    inside = [node for node in tree.body if start < node.lineno < end]
    outside = [node for node in tree.body if node not in inside]
    assert all(isinstance(node, ast.Import | ast.ImportFrom | ast.Expr) for node in outside), "all else is in the block"
    assert isinstance(inside[0], ast.Assign), "constants come first"
    first_function = next(n for n, node in enumerate(inside) if not isinstance(node, ast.Assign))
    constants = [target.id for node in inside[:first_function] for target in node.targets]  # type: ignore[attr-defined]
    assert all(name == name.upper() for name in constants)
    assert {"NUM_STAGES"} <= set(constants)
    assert not any(isinstance(node, ast.Assign) for node in inside[first_function:]), "a constant below a function"
    (kernel,) = [node for node in inside if isinstance(node, ast.FunctionDef) and node.name == "kernel"]
    assert [argument.arg for argument in kernel.args.args] == [spec.name for spec in task.inputs]


@each_task
def test_imports_and_calls_are_allowed_ones(task: Task) -> None:
    tree = ast.parse(seed_file(task.id).read_text(encoding="utf-8"))
    imported = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    imported |= {node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert {name.split(".")[0] for name in imported} <= ALLOWED_IMPORTS
    assert not {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)} & FORBIDDEN_CALLS


@each_task
def test_triton_is_chosen_explicitly_at_every_call(task: Task) -> None:
    tree = ast.parse(seed_file(task.id).read_text(encoding="utf-8"))
    calls = [n for n in ast.walk(tree) if isinstance(n, ast.Call) and ast.unparse(n.func) == "pl.pallas_call"]
    assert calls
    made = [
        n for n in ast.walk(tree) if isinstance(n, ast.Assign) and ast.unparse(n.value).startswith("plgpu.Compiler")
    ]
    named = [ast.unparse(target) for node in made for target in node.targets]  # one for several calls
    for call in calls:
        given_params = {word.arg: ast.unparse(word.value) for word in call.keywords}
        assert given_params["compiler_params"].startswith(("plgpu.CompilerParams(", *named)), given_params
        assert "interpret" not in given_params


# ---- the program


@each_task
def test_lowers_to_the_same_program_for_both_gpus(task: Task) -> None:
    for size in TABLE_SIZES:
        dims = dims_of(task, size)
        ours, other = (artefact_of(task, kernel_of(task), dims, gpu) for gpu in ("A100", "H100"))
        assert ours.sha256 == other.sha256, size
        assert len(ours.kernels) >= 1


# ---- values


@each_task
def test_right_at_small(task: Task) -> None:
    assert_right(task, dims_of(task, "small"))


@pytest.mark.parametrize("task", [task for task in TASKS if task.stress is not None], ids=lambda task: task.id)
def test_right_under_stress(task: Task) -> None:
    assert_right(task, dims_of(task, "small"), stress=True)


@each_task
def test_right_at_odd_sizes(task: Task) -> None:
    for seed, dims in enumerate(odd_dims(task)):
        assert_right(task, dims, seed)


@each_task
def test_right_at_drawn_sizes(task: Task) -> None:
    extents = {
        name: st.one_of(OVER_A_WARP, st.integers(1, DRAWN_LIMIT)).filter(lambda n, dim=dim: dim.min <= n <= dim.max)
        for name, dim in task.dims.items()
    }

    @settings(
        max_examples=2, deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck)
    )  # each size is a program of its own to export and references to compile: a few draws a seed
    @given(st.fixed_dictionaries(extents).filter(lambda dims: all(extent(e, dims) >= 1 for e in task.output_shape)))
    def right(dims: dict[str, int]) -> None:
        assert_right(task, dims)

    right()


# ---- the tests above can fail


BROKEN = {
    "no mask at the edge": ("L1/relu", ", mask=inside)", ")", "out_of_bounds"),
    "a grid that stops short": ("L1/relu", "pl.cdiv(m, BLOCK_M)", "m // BLOCK_M", "unwritten"),
    "a constant that is off": ("L1/rsqrt", "EPSILON = 1e-5", "EPSILON = 3e-5", "numerics"),
}


@pytest.mark.parametrize(("id", "old", "new", "reason"), BROKEN.values(), ids=BROKEN)
def test_a_broken_seed_is_seen(id: str, old: str, new: str, reason: str) -> None:
    task = next(one for one in TASKS if one.id == id)
    source = seed_file(id).read_text(encoding="utf-8")
    assert old in source
    names: dict[str, Any] = {"__name__": "broken"}
    exec(compile(source.replace(old, new), "broken.py", "exec"), names)
    said = judged(task, names["kernel"], odd_dims(task)[0])
    assert said.reason == reason, said


# ---- what is known of the originals


def test_findings_are_of_these_originals_and_in_our_words() -> None:
    from pallas_evo.archive import sha256_of_text

    measured = json.loads((SEEDS / "tpu" / "findings.json").read_text(encoding="utf-8"))
    assert {"jax", "jaxlib", "triton", "measured_on", "measured_by"} <= set(measured["environment"])
    assert list(measured["findings"]) == [task.id for task in TASKS]
    for task in TASKS:
        finding = measured["findings"][task.id]
        assert finding["source_sha256"] == sha256_of_text(original_file(task.id).read_text(encoding="utf-8")), task.id
        assert finding["reason"] in REASONS or finding["reason"] == "compiles"
        assert finding["message"].count(" ") > 5, "a sentence"
        assert not re.search(r"/(work|home|tmp|usr)/", finding["message"]), "a path of some machine"
        assert finding["details"]["slow"] is None, "only a GPU can say so"
        assert (finding["details"]["shared_bytes"] or 0) > 163 << 10 or finding["reason"] != "shared_memory"


@pytest.mark.parametrize("id", ["L1/relu", "L1/softmax", "L1/embedding_lookup", "L2/pwm_scan"])
def test_finding_is_what_the_gates_still_say(id: str) -> None:
    """One of each kind that lowering or validating finds; those of compiling take minutes to measure again."""
    from pallas_evo.artefact import validate_jailed
    from pallas_evo.config import TraceLimits
    from pallas_evo.tracing import trace_original

    task = next(one for one in TASKS if one.id == id)
    finding = json.loads((SEEDS / "tpu" / "findings.json").read_text(encoding="utf-8"))["findings"][id]
    size = workload(task, dims_of(task, "medium"), "medium")
    said = trace_original(original_file(id).read_text(encoding="utf-8"), task, [size], TraceLimits())
    if not isinstance(said, Rejection):
        (said,) = validate_jailed([(said.modules[0], size)], ArtefactLimits())
    assert isinstance(said, Rejection)
    assert said.reason == finding["reason"]
