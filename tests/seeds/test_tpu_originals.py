"""The TPU-sized originals in seeds/tpu: one for each task, right in interpret mode, and lowering for a TPU.

The registry is walked, so a 46th task without an original fails here. All of it runs on a machine without a TPU.
"""

from __future__ import annotations

import ast
import json
import runpy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from jax import export
from jax.experimental.pallas import tpu as pltpu
from jax.sharding import AbstractDevice, AbstractMesh, AxisType

from pallas_evo.tasks import dims_of, draw_inputs, load_tasks, reference64, workload
from pallas_evo.types import Task

SEEDS = Path(__file__).resolve().parents[2] / "seeds"
TPU_CALL = "tpu_custom_call"
TASKS = load_tasks()
# The element-by-element bound of class f32. Dots run in float32 on the CPU, so they are held to the same.
RELATIVE, OF_RMS = 1e-5, 1e-5
MEDIUM_SPOT_CHECKS = ("L1/softmax", "L1/reduce_sum", "L2/pwm_scan", "L2/swiglu", "L3/flash_attention")

each_task = pytest.mark.parametrize("task", TASKS, ids=lambda task: task.id)


def path_of(task: Task) -> Path:
    return SEEDS / "tpu" / f"level{task.level}" / f"{task.id.split('/')[1]}.py"


def kernel_of(task: Task) -> Callable[..., Any]:
    return runpy.run_path(str(path_of(task)))["kernel"]


def lower_for_tpu(kernel: Callable[..., Any], task: Task, size: str) -> str:
    shapes = [jax.ShapeDtypeStruct(a.shape, a.dtype) for a in workload(task, dims_of(task, size), size).inputs]
    device = AbstractDevice(device_kind="TPU v5e", platform="tpu", num_cores=1)
    mesh = AbstractMesh((1,), ("x",), axis_types=(AxisType.Auto,), abstract_device=device)
    check = export.DisabledSafetyCheck.custom_call(TPU_CALL)
    with jax.sharding.use_abstract_mesh(mesh):
        return export.export(jax.jit(kernel), platforms=["tpu"], disabled_checks=[check])(*shapes).mlir_module()


def assert_right(task: Task, size: str, mode: Any) -> None:
    inputs = draw_inputs(task, dims_of(task, size), np.random.default_rng(task.number))
    expected = reference64(task, inputs)
    with pltpu.force_tpu_interpret_mode(mode):
        out = np.asarray(jax.jit(kernel_of(task))(*inputs))
    assert (out.shape, str(out.dtype)) == (expected.shape, task.output_dtype)
    if task.precision == "exact":
        np.testing.assert_array_equal(out, expected.astype(out.dtype))
    else:
        rms = float(np.sqrt(np.mean(expected**2)))
        np.testing.assert_allclose(out, expected, rtol=RELATIVE, atol=OF_RMS * rms)


def test_every_task_has_an_original_and_every_original_a_task() -> None:
    assert sorted((SEEDS / "tpu").glob("level*/*.py")) == sorted(path_of(task) for task in TASKS)


def test_every_fix_has_a_short_label() -> None:
    fixes = json.loads((SEEDS / "tpu" / "fixes.json").read_text(encoding="utf-8"))
    assert list(fixes) == [task.id for task in TASKS]
    for task_id, entry in fixes.items():
        assert set(entry) == {"fix"}, task_id
        assert 0 < len(entry["fix"]) <= 60, task_id


@each_task
def test_keeps_the_contract(task: Task) -> None:
    source = path_of(task).read_text(encoding="utf-8")
    tree = ast.parse(source)
    docstring = ast.get_docstring(tree)
    assert docstring is not None
    for part in ("Inputs:", "Returns:", f"Task: {task.id}.", "SPDX-License-Identifier: Apache-2.0"):
        assert part in docstring
    assert f"float32, {task.precision}" in docstring, "the docstring states another precision class than the task"
    assert "```" not in source
    assert max(map(len, source.splitlines())) <= 120
    assert source.count("# EVOLVE-BLOCK-START\n") == source.count("# EVOLVE-BLOCK-END\n") == 1
    (kernel,) = [n for n in tree.body if isinstance(n, ast.FunctionDef) and n.name == "kernel"]
    assert [a.arg for a in kernel.args.args] == [spec.name for spec in task.inputs]
    start, end = source.index("# EVOLVE-BLOCK-START"), source.index("# EVOLVE-BLOCK-END")
    assert start < source.index("def kernel(") < end


@each_task
def test_leaves_the_backend_to_the_platform(task: Task) -> None:
    names = {n.id for n in ast.walk(ast.parse(path_of(task).read_text())) if isinstance(n, ast.Name)}
    words = {n.arg for n in ast.walk(ast.parse(path_of(task).read_text())) if isinstance(n, ast.keyword)}
    assert "plgpu" not in names
    assert not words & {"compiler_params", "interpret"}


@each_task
def test_right_at_small_in_tpu_interpret_mode(task: Task) -> None:
    assert_right(task, "small", pltpu.InterpretParams())


@pytest.mark.parametrize("task", [t for t in TASKS if t.id in MEDIUM_SPOT_CHECKS], ids=lambda task: task.id)
def test_right_at_medium_in_plain_interpret_mode(task: Task) -> None:
    assert_right(task, "medium", True)


@each_task
@pytest.mark.parametrize("size", ["small", "medium", "large"])
def test_lowers_for_tpu(task: Task, size: str) -> None:
    assert TPU_CALL in lower_for_tpu(kernel_of(task), task, size)


def test_a_block_that_mosaic_dislikes_does_not_lower() -> None:
    """The control: lowering does look at blocks, so that the test above can fail."""
    from jax.experimental import pallas as pl

    def kernel(x: jax.Array) -> jax.Array:
        def body(x_ref: Any, o_ref: Any) -> None:
            o_ref[...] = x_ref[...]

        tile = pl.BlockSpec((4, 100), lambda i: (i, 0))
        shape = jax.ShapeDtypeStruct(x.shape, x.dtype)
        return pl.pallas_call(body, grid=(4,), in_specs=[tile], out_specs=tile, out_shape=shape)(x)

    with pytest.raises(ValueError, match="divisible by 8 and 128"):
        lower_for_tpu(kernel, TASKS[0], "small")
