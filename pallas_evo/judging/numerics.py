"""The numerics gate: is an output close enough to the float64 reference, by the judge's own yardstick?

Two bounds, both of which must hold (docs/numerics.md gives the measurements behind them):

normwise     |out - ref| / |ref| (Frobenius) at most `yardstick_factor` times the yardstick's, never asked below
             `normwise_floor`
elementwise  |out - ref| <= rtol |ref| + a RMS(ref); for class `dot`, a is `yardstick_factor` times the yardstick's own
             largest excess over rtol |ref|, in units of RMS(ref), and at least `dot_atol_rms`

Class `exact` is compared bit for bit (0.0 equals -0.0). No figure that the runner measured enters a bound.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pallas_evo.config import Numerics
from pallas_evo.types import Precision


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """One output against its reference. `reason` is None when it is close enough."""

    reason: str | None
    message: str
    normwise_error: float | None
    bound: float | None


def normwise(output: np.ndarray, reference: np.ndarray) -> float:
    """|output - reference| / |reference| in the Frobenius norm; the absolute error where the reference is zero."""
    error = float(np.linalg.norm((output.astype(np.float64) - reference).ravel()))
    size = float(np.linalg.norm(reference.ravel().astype(np.float64)))
    return error / size if size > 0 else error


def compare(
    output: np.ndarray, reference: np.ndarray, yardstick: np.ndarray, precision: Precision, bounds: Numerics
) -> Comparison:
    """Compare one output.

    Args:
        output: the candidate's, float32.
        reference: float64, of the shape that the output must have.
        yardstick: the judge's own float32 answer on the same inputs.
        precision: the task's class.
        bounds: the configured bounds.
    """
    if output.shape != reference.shape:
        return _refused("numerics", f"The output's shape is {output.shape}, the task's is {reference.shape}.")
    quick = _at_a_glance(output, reference, yardstick, precision, bounds)
    if quick is not None:
        return quick
    finite = np.isfinite(reference)
    wrong = finite & ~np.isfinite(output)
    if wrong.any():
        return _refused(
            "non_finite",
            f"{int(wrong.sum())} of {wrong.size} elements are NaN or infinite where the reference is finite, the first "
            f"at {_where(wrong)}. Look for a division by zero, an overflow in exp, or elements never stored.",
        )
    if precision == "exact":
        return _compare_exact(output, yardstick)
    if not finite.all():  # no task's law makes one; if an input did, only the same value will do
        if not np.array_equal(output[~finite], reference[~finite].astype(output.dtype), equal_nan=True):
            return _refused("non_finite", "The reference is not finite where the output is, or is another infinity.")
        output, reference, yardstick = output[finite], reference[finite], yardstick[finite]
    error = normwise(output, reference)
    bound = max(bounds.yardstick_factor * normwise(yardstick, reference), bounds.normwise_floor)
    difference = np.abs(output - reference)  # float32 - float64 is float64
    rms = float(np.sqrt(np.mean(np.square(reference)))) if reference.size else 0.0
    if precision == "dot":
        rtol = bounds.dot_rtol
        excess = float(np.max(np.abs(yardstick - reference) - rtol * np.abs(reference), initial=0.0))
        allowed = max(bounds.yardstick_factor * excess, bounds.dot_atol_rms * rms)
    else:
        rtol, allowed = bounds.f32_rtol, bounds.f32_atol_rms * rms
    over = difference > rtol * np.abs(reference) + allowed
    if over.any():
        worst = np.unravel_index(int(np.argmax(difference - rtol * np.abs(reference))), reference.shape)
        return Comparison(
            reason="numerics",
            message=f"{int(over.sum())} of {over.size} elements are too far from the reference; the worst, at "
            f"{_index(worst)}, is {float(output[worst]):.7g}, not {float(reference[worst]):.7g} "
            f"(allowed: {rtol * abs(float(reference[worst])) + allowed:.3g}).",
            normwise_error=error,
            bound=bound,
        )
    if not error <= bound:
        return Comparison(
            reason="numerics",
            message=f"The normwise error is {error:.3g}, the bound {bound:.3g}: every element is a little off. "
            "Accumulate in float32, and use no precision below the task's class.",
            normwise_error=error,
            bound=bound,
        )
    return Comparison(reason=None, message="", normwise_error=error, bound=bound)


_CHUNK = 1 << 15  # elements looked at together: their float64 values stay in a core's cache


def _at_a_glance(
    output: np.ndarray, reference: np.ndarray, yardstick: np.ndarray, precision: Precision, bounds: Numerics
) -> Comparison | None:
    """The verdict on an output that is close enough, in one pass over the memory; None where a closer look is due."""
    if precision == "exact":
        if np.array_equal(output, yardstick) and np.isfinite(reference).all():
            return Comparison(reason=None, message="", normwise_error=0.0, bound=0.0)
        return None
    rtol = bounds.dot_rtol if precision == "dot" else bounds.f32_rtol
    error = yard = size = 0.0
    worst = excess = -np.inf
    flat, wanted, honest = output.ravel(), reference.ravel(), yardstick.ravel()
    with np.errstate(invalid="ignore", over="ignore"):
        for start in range(0, wanted.size, _CHUNK):
            want = wanted[start : start + _CHUNK]
            off, own = flat[start : start + _CHUNK] - want, honest[start : start + _CHUNK] - want
            error, yard, size = error + _squared(off), yard + _squared(own), size + _squared(want)
            allowance = np.abs(want)
            allowance *= rtol
            worst = max(worst, float(np.max(np.abs(off, out=off) - allowance)))
            if precision == "dot":
                excess = max(excess, float(np.max(np.abs(own, out=own) - allowance)))
    if not size > 0 or not np.isfinite(error + yard + size):
        return None
    rms = float(np.sqrt(size / wanted.size))
    allowed = (
        max(bounds.yardstick_factor * max(excess, 0.0), bounds.dot_atol_rms * rms)
        if precision == "dot"
        else bounds.f32_atol_rms * rms
    )
    normwise_error = float(np.sqrt(error / size))
    bound = max(bounds.yardstick_factor * float(np.sqrt(yard / size)), bounds.normwise_floor)
    if worst > allowed or normwise_error > bound:
        return None
    return Comparison(reason=None, message="", normwise_error=normwise_error, bound=bound)


def _squared(values: np.ndarray) -> float:
    """The sum of squares; not by BLAS, whose threads would spin between chunks this small."""
    return float(np.add.reduce(np.square(values)))


def _compare_exact(output: np.ndarray, yardstick: np.ndarray) -> Comparison:
    differs = output != yardstick
    error = normwise(output, yardstick.astype(np.float64))
    if differs.any():
        at = np.unravel_index(int(np.argmax(differs)), differs.shape)
        return Comparison(
            reason="numerics",
            message=f"{int(differs.sum())} of {differs.size} elements differ, and this task is exact; the first, at "
            f"{_index(at)}, is {float(output[at]):.9g}, not {float(yardstick[at]):.9g}.",
            normwise_error=error,
            bound=0.0,
        )
    return Comparison(reason=None, message="", normwise_error=error, bound=0.0)


def _refused(reason: str, message: str) -> Comparison:
    return Comparison(reason=reason, message=message, normwise_error=None, bound=None)


def _where(mask: np.ndarray) -> str:
    return _index(np.unravel_index(int(np.argmax(mask)), mask.shape))


def _index(index: tuple[np.intp, ...]) -> str:
    return "(" + ", ".join(str(int(i)) for i in index) + ")"
