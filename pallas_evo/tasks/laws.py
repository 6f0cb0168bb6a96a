"""How inputs are drawn: one law for each input, and the stress case on top."""

from __future__ import annotations

import re
from collections.abc import Mapping

import numpy as np

from pallas_evo.errors import UsageError
from pallas_evo.tasks.shapes import check_dims, extent
from pallas_evo.types import InputSpec, Task

_SCALES = (0.4, 2.5)
_BOUND = re.compile(r"index_below:(?:(?P<number>\d+)|(?P<input>\w+)\.shape\[(?P<axis>\d+)\])")


def draw_inputs(
    task: Task, dims: Mapping[str, int], rng: np.random.Generator, *, stress: bool = False
) -> tuple[np.ndarray, ...]:
    """Draw a task's inputs, in order, by its laws; with `stress`, by its stress case.

    Returns:
        Contiguous float32 and int32 arrays of the input shapes.

    Raises:
        UsageError: `dims` do not fit the task, or `stress` is asked of a task that has no stress case.
    """
    check_dims(task, dims)
    if stress and task.stress is None:
        raise UsageError(f"{task.id} has no stress case. Ask only where task.stress is not None.")
    drawn = []
    for spec in task.inputs:
        shape = tuple(extent(entry, dims) for entry in spec.shape)
        if stress and task.stress and spec.name in task.stress.inputs and task.stress.uniform:
            value = _uniform(rng, shape, *task.stress.uniform)
        else:
            value = _draw(task, spec, shape, dims, rng)
            if stress and task.stress and spec.name in task.stress.inputs and task.stress.scale:
                value = value * np.float32(task.stress.scale)
        drawn.append(value)
    return tuple(drawn)


def _draw(
    task: Task, spec: InputSpec, shape: tuple[int, ...], dims: Mapping[str, int], rng: np.random.Generator
) -> np.ndarray:
    match spec.law:
        case "normal":
            return _normal(rng, shape, _log_uniform(rng))
        case "weight":
            return _normal(rng, shape, _log_uniform(rng) / np.sqrt(shape[0]))
        case "positive":
            return _uniform(rng, shape, 0.01, 10.0)
        case "unit_interval":
            return rng.random(shape, np.float32)
        case "zero_one":
            return (rng.random(shape, np.float32) < 0.8).astype(np.float32)
        case "probability_rows":
            grown: np.ndarray = np.exp(rng.standard_normal(shape, np.float32))
            grown /= grown.sum(axis=-1, keepdims=True)
            return grown
        case "onehot4":
            return np.eye(4, dtype=np.float32)[rng.integers(0, 4, shape[0])]
        case law:
            return rng.integers(0, _bound(task, law, dims), shape, dtype=np.int32)


def _log_uniform(rng: np.random.Generator) -> float:
    low, high = np.log(_SCALES)
    return float(np.exp(rng.uniform(low, high)))


def _normal(rng: np.random.Generator, shape: tuple[int, ...], scale: float) -> np.ndarray:
    value = rng.standard_normal(shape, np.float32)
    value *= np.float32(scale)
    return value


def _uniform(rng: np.random.Generator, shape: tuple[int, ...], low: float, high: float) -> np.ndarray:
    """Uniform on the open interval: rounding to float32 reaches the ends, so they are cut off."""
    ends = np.float32(low), np.float32(high)
    value = ends[0] + (ends[1] - ends[0]) * rng.random(shape, np.float32)
    inside: np.ndarray = np.clip(value, np.nextafter(ends[0], ends[1]), np.nextafter(ends[1], ends[0]), out=value)
    return inside


def _bound(task: Task, law: str, dims: Mapping[str, int]) -> int:
    found = _BOUND.fullmatch(law)
    if found is None:
        raise ValueError(f"{task.id}: unknown input law {law!r}.")
    if found["number"]:
        return int(found["number"])
    named = next(spec for spec in task.inputs if spec.name == found["input"])
    return extent(named.shape[int(found["axis"])], dims)
