"""A task is admissible when nothing but its own answer passes the numerics gate: all 45, at small and medium.

Zeros, the mean, an input passed through, the answer to other inputs, and an answer half a percent too large must all
be refused by the real judge (`judging.numerics.compare` with the default bounds), and so must other tasks' answers to
the same inputs. The yardstick itself must pass, or the refusals would prove nothing.
"""

from __future__ import annotations

import contextlib
import zlib
from collections.abc import Iterator
from functools import lru_cache
from typing import Any, Literal

import numpy as np
import pytest

from pallas_evo import tasks
from pallas_evo.config import Numerics
from pallas_evo.judging.numerics import compare
from pallas_evo.types import Task

Size = Literal["small", "medium"]
SAME_FORMULA = {frozenset({"L1/cross_entropy", "L2/fused_softmax_cross_entropy"})}
PAIRS_ELEMENTS = 1 << 18  # at medium, pairs of tasks whose inputs and output have more elements are left to small
ALL = tasks.load_tasks()


def drawn(task: Task, size: Size, index: int = 0) -> tuple[tuple[np.ndarray, ...], np.ndarray, np.ndarray]:
    """Inputs by the task's law, the float64 reference and the yardstick."""
    return _drawn(task.id, size, index)


@lru_cache(maxsize=4)
def _drawn(name: str, size: Size, index: int) -> tuple[tuple[np.ndarray, ...], np.ndarray, np.ndarray]:
    task = tasks.get_task(name)
    rng = np.random.default_rng([zlib.crc32(f"{task.id} {size}".encode()), index])
    inputs = tasks.draw_inputs(task, tasks.dims_of(task, size), rng)
    return inputs, tasks.reference64(task, inputs), tasks.yardstick(task, inputs)


def reason_of(task: Task, output: np.ndarray, reference: np.ndarray, yardstick: np.ndarray) -> str | None:
    with np.errstate(all="ignore"):
        return compare(output.astype(np.float32), reference, yardstick, task.precision, Numerics()).reason


def fitted(value: np.ndarray, shape: tuple[int, ...]) -> Iterator[np.ndarray]:
    """An input as an output of `shape`: itself and transposed where they fit, else broadcast, cut or repeated."""
    turned = [value, value.T] if value.ndim == 2 else [value]
    whole = [one for one in turned if one.shape == shape]
    if whole:
        yield from whole
        return
    for one in turned:
        for grown in (one, one[..., None]):
            with contextlib.suppress(ValueError):
                yield np.broadcast_to(grown, shape)
        if one.ndim == len(shape) + 1:
            yield from (part for part in (one[..., 0], one[0]) if part.shape == shape)
        if one.ndim == len(shape):
            cut = one[tuple(slice(want) for want in shape)]
            if cut.shape == shape:
                yield cut
    yield np.resize(value, shape)


def probes(task: Task, size: Size) -> Iterator[tuple[str, np.ndarray]]:
    """The five ways to match a reference without computing it."""
    inputs, reference, yardstick = drawn(task, size)
    yield "zeros", np.zeros_like(reference)
    yield "mean", np.full_like(reference, reference.mean())
    for axis in range(reference.ndim if size == "small" else 0):
        yield f"mean along axis {axis}", np.broadcast_to(reference.mean(axis, keepdims=True), reference.shape)
    for spec, value in zip(task.inputs, inputs, strict=True):
        for passed in fitted(value, reference.shape):
            yield f"passthrough of {spec.name}", passed
    yield "other inputs", drawn(task, size, 1)[2]
    yield "scale + 0.5 %", yardstick * np.float32(1.005)
    if size == "small":
        yield "scale - 0.5 %", yardstick * np.float32(0.995)


@pytest.mark.parametrize("size", ["small", "medium"])
@pytest.mark.parametrize("task", ALL, ids=lambda task: task.id)
def test_nothing_but_the_answer_is_accepted(task: Task, size: Size) -> None:
    _, reference, yardstick = drawn(task, size)
    assert reason_of(task, yardstick, reference, yardstick) is None
    accepted = [name for name, output in probes(task, size) if reason_of(task, output, reference, yardstick) is None]
    assert accepted == []


def signature(task: Task, size: Size) -> tuple[Any, ...]:
    made = tasks.workload(task, tasks.dims_of(task, size), size)
    return tuple((spec.shape, spec.dtype) for spec in made.inputs), made.output.shape


def elements(task: Task, size: Size) -> int:
    inputs, output = signature(task, size)
    return int(sum(np.prod(shape) for shape, _ in inputs) + np.prod(output))


def rivals(task: Task, size: Size) -> list[Task]:
    """Tasks that take inputs of the same shapes and types and give an output of the same shape."""
    if size == "medium" and elements(task, size) > PAIRS_ELEMENTS:
        return []
    return [
        other
        for other in ALL
        if other is not task
        and signature(other, size) == signature(task, size)
        and frozenset({other.id, task.id}) not in SAME_FORMULA
    ]


@pytest.mark.parametrize("size", ["small", "medium"])
@pytest.mark.parametrize("task", [task for task in ALL if rivals(task, "small")], ids=lambda task: task.id)
def test_no_other_tasks_answer_is_accepted(task: Task, size: Size) -> None:
    inputs, reference, yardstick = drawn(task, size)
    with np.errstate(all="ignore"):
        accepted = [
            other.id
            for other in rivals(task, size)
            if reason_of(task, tasks.yardstick(other, inputs), reference, yardstick) is None
        ]
    assert accepted == []


def test_the_two_cross_entropies_are_one_formula() -> None:
    """The one pair that is left out above is left out for a reason."""
    one, other = (tasks.get_task(name) for name in ("L1/cross_entropy", "L2/fused_softmax_cross_entropy"))
    inputs, reference, yardstick = drawn(one, "small")
    assert reason_of(one, tasks.yardstick(other, inputs), reference, yardstick) is None
