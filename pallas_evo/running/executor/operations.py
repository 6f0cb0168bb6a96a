"""What the element-wise operations of Triton IR compute, on NumPy arrays.

Integers are signless in Triton and held signed here; unsigned operations work on unsigned views. Integer arithmetic
wraps, a division by zero gives 0, a float too large for an integer type saturates, as the hardware does. Floats
narrower than 32 bits are computed in float32 and rounded once, which for + - * / is the correctly rounded result.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from functools import reduce
from typing import Any

import ml_dtypes
import numpy as np

from pallas_evo.running.executor.libdevice import (
    bit_count,
    copysign,
    erf,
    erfc,
    exp2,
    leading_zeros,
    reciprocal_root,
    trailing_zeros,
)

Function = Callable[..., np.ndarray]


def is_float(dtype: np.dtype[Any]) -> bool:
    """Whether a dtype is a float, the 8- and 16-bit ones of ml_dtypes included."""
    return dtype.kind == "f" or (dtype.kind == "V" and dtype.name.startswith(("bfloat", "float")))


def unsigned(array: np.ndarray) -> np.ndarray:
    """The same bits as unsigned integers; booleans stay."""
    return array.view(f"u{array.dtype.itemsize}") if array.dtype.kind == "i" else array


def _signed_view(array: np.ndarray) -> np.ndarray:
    return array.view(f"i{array.dtype.itemsize}") if array.dtype.kind == "u" else array


def _narrow(array: np.ndarray, dtype: np.dtype[Any]) -> np.ndarray:
    if dtype == np.bool_:
        return array if array.dtype == np.bool_ else (array.astype(np.int8) & 1).astype(np.bool_)
    return _signed_view(array).astype(dtype, copy=False)


def _floats(function: Function) -> Function:
    """Compute narrow floats in float32; round the result to the operands' type."""

    def run(*arguments: np.ndarray) -> np.ndarray:
        dtype = arguments[0].dtype
        if dtype.itemsize < 4:
            arguments = tuple(
                argument.astype(np.float32) if is_float(argument.dtype) else argument for argument in arguments
            )
        made = function(*arguments)
        return made if made.dtype in (dtype, np.bool_) else made.astype(dtype)

    return run


def _integers(function: Function, on_bools: Function | None = None) -> Function:
    """Signed integers; an i1 is -1 or 0."""

    def run(*arguments: np.ndarray) -> np.ndarray:
        dtype = arguments[0].dtype
        if dtype != np.bool_:
            return function(*arguments)
        if on_bools is not None:
            return on_bools(*arguments)
        made = function(*(-argument.astype(np.int8) for argument in arguments))
        return made if made.dtype == np.bool_ else _narrow(made, dtype)

    return run


def _unsigned(function: Function) -> Function:
    """Unsigned integers: an i1 is 1 or 0."""

    def run(*arguments: np.ndarray) -> np.ndarray:
        dtype = arguments[0].dtype
        if dtype == np.bool_:
            made = function(*(argument.astype(np.uint8) for argument in arguments))
        else:
            made = function(*(unsigned(argument) for argument in arguments))
        return made if made.dtype == np.bool_ else _narrow(made, dtype)

    return run


def _divide_towards_zero(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    quotient = np.floor_divide(a, b)
    return quotient + ((np.remainder(a, b) != 0) & ((a < 0) != (b < 0)))


def _ceil_divide(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return np.floor_divide(a, b) + (np.remainder(a, b) != 0)


def _power_of_integers(base: np.ndarray, exponent: np.ndarray) -> np.ndarray:
    """Integer power; a negative exponent gives the truncated reciprocal."""
    with_one = np.where(exponent < 0, np.where(np.abs(base) == 1, np.where(exponent % 2 == 0, 1, base), 0), base)
    return np.power(with_one, np.where(exponent < 0, 1, exponent)).astype(base.dtype)


def shift(function: Function, *, fills_sign: bool = False) -> Function:
    """A shift whose amount is read unsigned: an amount past the width leaves 0 (or the sign)."""

    def run(value: np.ndarray, amount: np.ndarray) -> np.ndarray:
        width = 8 * value.dtype.itemsize
        far = unsigned(amount) >= width
        made = function(value, np.where(far, 0, amount).astype(value.dtype))
        return np.where(far, -(value < 0).astype(value.dtype) if fills_sign else value.dtype.type(0), made)

    return run


COMPARE_INTEGERS: tuple[Function, ...] = (
    np.equal,
    np.not_equal,
    *(_integers(function) for function in (np.less, np.less_equal, np.greater, np.greater_equal)),
    *(_unsigned(function) for function in (np.less, np.less_equal, np.greater, np.greater_equal)),
)
"""arith.cmpi's predicates: eq ne slt sle sgt sge ult ule ugt uge."""


def _unordered(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return np.isnan(a) | np.isnan(b)


def _or_unordered(function: Function) -> Function:
    return lambda a, b: function(a, b) | _unordered(a, b)


COMPARE_FLOATS: tuple[Function, ...] = tuple(
    _floats(function)
    for function in (
        lambda a, b: np.zeros(np.broadcast_shapes(a.shape, b.shape), np.bool_),
        np.equal,
        np.greater,
        np.greater_equal,
        np.less,
        np.less_equal,
        lambda a, b: (a < b) | (a > b),
        lambda a, b: ~_unordered(a, b),
        _or_unordered(np.equal),
        _or_unordered(np.greater),
        _or_unordered(np.greater_equal),
        _or_unordered(np.less),
        _or_unordered(np.less_equal),
        np.not_equal,
        _unordered,
        lambda a, b: np.ones(np.broadcast_shapes(a.shape, b.shape), np.bool_),
    )
)
"""arith.cmpf's predicates: false oeq ogt oge olt ole one ord ueq ugt uge ult ule une uno true."""

_FLOAT: dict[str, Function] = {
    "arith.addf": np.add,
    "arith.subf": np.subtract,
    "arith.mulf": np.multiply,
    "arith.divf": np.divide,
    "arith.remf": np.fmod,
    "arith.negf": np.negative,
    "arith.maxnumf": np.fmax,  # of a number and a NaN: the number
    "arith.minnumf": np.fmin,
    "arith.maximumf": np.maximum,  # of a number and a NaN: the NaN
    "arith.minimumf": np.minimum,
    "math.absf": np.abs,
    "math.acos": np.arccos,
    "math.acosh": np.arccosh,
    "math.asin": np.arcsin,
    "math.asinh": np.arcsinh,
    "math.atan": np.arctan,
    "math.atan2": np.arctan2,
    "math.atanh": np.arctanh,
    "math.cbrt": np.cbrt,
    "math.ceil": np.ceil,
    "math.copysign": copysign,
    "math.cos": np.cos,
    "math.cosh": np.cosh,
    "math.erf": erf,
    "math.erfc": erfc,
    "math.exp": np.exp,
    "math.exp2": exp2,
    "math.expm1": np.expm1,
    "math.floor": np.floor,
    "math.fma": lambda a, b, c: (a.astype(np.float64) * b + c).astype(a.dtype),
    "math.isfinite": np.isfinite,
    "math.isinf": np.isinf,
    "math.isnan": np.isnan,
    "math.log": np.log,
    "math.log10": np.log10,
    "math.log1p": np.log1p,
    "math.log2": np.log2,
    "math.powf": np.power,
    "math.fpowi": np.power,
    "math.round": lambda a: np.copysign(np.floor(np.abs(a) + 0.5), a),  # halves away from zero
    "math.roundeven": np.rint,
    "math.rsqrt": reciprocal_root,
    "math.sin": np.sin,
    "math.sinh": np.sinh,
    "math.sqrt": np.sqrt,
    "math.tan": np.tan,
    "math.tanh": np.tanh,
    "math.trunc": np.trunc,
    "tt.precise_divf": np.divide,
    "tt.precise_sqrt": np.sqrt,
}

FLOAT_OPERATIONS: dict[str, Function] = {name: _floats(function) for name, function in _FLOAT.items()}
"""Element-wise operations on floats. Each counts as one FLOP an element."""

INTEGER_OPERATIONS: dict[str, Function] = {
    "arith.addi": _integers(np.add, np.logical_xor),
    "arith.subi": _integers(np.subtract, np.logical_xor),
    "arith.muli": _integers(np.multiply, np.logical_and),
    "arith.divsi": _integers(_divide_towards_zero),
    "arith.divui": _unsigned(np.floor_divide),
    "arith.ceildivsi": _integers(_ceil_divide),
    "arith.ceildivui": _unsigned(_ceil_divide),
    "arith.floordivsi": _integers(np.floor_divide),
    "arith.remsi": _integers(np.fmod),
    "arith.remui": _unsigned(np.remainder),
    "arith.andi": np.bitwise_and,
    "arith.ori": np.bitwise_or,
    "arith.xori": np.bitwise_xor,
    "arith.shli": _integers(shift(np.left_shift)),
    "arith.shrsi": _integers(shift(np.right_shift, fills_sign=True)),
    "arith.shrui": _unsigned(shift(np.right_shift)),
    "arith.maxsi": _integers(np.maximum),
    "arith.minsi": _integers(np.minimum),
    "arith.maxui": _unsigned(np.maximum),
    "arith.minui": _unsigned(np.minimum),
    "math.absi": _integers(np.abs),
    "math.ctpop": bit_count,
    "math.ctlz": leading_zeros,
    "math.cttz": trailing_zeros,
    "math.ipowi": _integers(_power_of_integers),
}


def _high_half(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Upper half of the unsigned product, by halves of the operands."""
    width = 8 * a.dtype.itemsize
    half, low = np.array(width // 2, a.dtype), np.array((1 << width // 2) - 1, a.dtype)
    a_high, a_low, b_high, b_low = a >> half, a & low, b >> half, b & low
    middle = a_high * b_low + ((a_low * b_low) >> half)
    return a_high * b_high + (middle >> half) + (((middle & low) + a_low * b_high) >> half)


INTEGER_OPERATIONS["tt.mulhiui"] = _unsigned(_high_half)


def to_integer(array: np.ndarray, dtype: np.dtype[Any], *, signed: bool) -> np.ndarray:
    """Float to integer: towards zero, saturating, NaN to 0."""
    width = 8 * dtype.itemsize
    least, most = (-(1 << width - 1), (1 << width - 1) - 1) if signed else (0, (1 << width) - 1)
    wide = np.trunc(array.astype(np.float64))
    inside = (wide >= float(least)) & (wide < float(most + 1))
    kind = np.dtype(f"{'i' if signed else 'u'}{dtype.itemsize}")
    made = np.where(inside, wide, 0).astype(kind)
    made = np.where(wide >= float(most + 1), kind.type(most), np.where(wide < least, kind.type(least), made))
    return _narrow(made, dtype)


def _to_float(array: np.ndarray, dtype: np.dtype[Any]) -> np.ndarray:
    return array if array.dtype == dtype else array.astype(dtype)


def round_towards_zero(array: np.ndarray, dtype: np.dtype[Any]) -> np.ndarray:
    """Narrow a float towards zero: where rounding went away from it, step back by one."""
    made = array.astype(dtype)
    bits = made.view(f"u{dtype.itemsize}")
    away = np.abs(made.astype(np.float64)) > np.abs(array.astype(np.float64))
    return np.where(away & np.isfinite(array), bits - bits.dtype.type(1), bits).view(dtype)


def convert(name: str, array: np.ndarray, dtype: np.dtype[Any], attributes: dict[str, Any]) -> np.ndarray:
    """The conversions: `array` as `dtype`, by the rules of the operation `name`."""
    match name:
        case "arith.extf" | "arith.truncf":
            return _to_float(array, dtype)
        case "tt.fp_to_fp":
            rounds_down = str(attributes.get("rounding", "1")) == "0"  # enum: RTZ 0, RTNE 1
            return round_towards_zero(array, dtype) if rounds_down else _to_float(array, dtype)
        case "arith.sitofp":
            return (-array.astype(np.int8) if array.dtype == np.bool_ else array).astype(dtype)
        case "arith.uitofp":
            return unsigned(array).astype(dtype)
        case "arith.fptosi" | "arith.fptoui":
            return to_integer(array, dtype, signed=name.endswith("si"))
        case "arith.extsi" | "arith.index_cast":
            return (-array.astype(np.int8) if array.dtype == np.bool_ else array).astype(dtype)
        case "arith.extui" | "arith.index_castui":
            return _narrow(unsigned(array).astype(f"u{dtype.itemsize}"), dtype)
        case "arith.trunci":
            return _narrow(array, dtype)
        case "arith.bitcast" | "tt.bitcast":
            return array if array.dtype == dtype else array.view(dtype)
    raise KeyError(name)


CONVERSIONS = (
    "arith.extf",
    "arith.truncf",
    "tt.fp_to_fp",
    "arith.sitofp",
    "arith.uitofp",
    "arith.fptosi",
    "arith.fptoui",
    "arith.extsi",
    "arith.extui",
    "arith.index_cast",
    "arith.index_castui",
    "arith.trunci",
    "arith.bitcast",
    "tt.bitcast",
)

REDUCERS: dict[str, np.ufunc] = {
    "arith.addi": np.add,
    "arith.muli": np.multiply,
    "arith.andi": np.bitwise_and,
    "arith.ori": np.bitwise_or,
    "arith.xori": np.bitwise_xor,
    "arith.maxsi": np.maximum,
    "arith.minsi": np.minimum,
    "arith.maxnumf": np.fmax,
    "arith.minnumf": np.fmin,
    "arith.maximumf": np.maximum,
    "arith.minimumf": np.minimum,
}
"""Combine functions whose result does not depend on the order, so that `ufunc.reduce` may do them."""


def clamp(value: np.ndarray, low: np.ndarray, high: np.ndarray, *, keeps_nan: bool) -> np.ndarray:
    """tt.clampf: `keeps_nan` says whether a NaN stays one or becomes `low`."""
    if keeps_nan:
        return np.minimum(np.maximum(value, low), high)
    return np.fmin(np.fmax(value, low), high)


def product(numbers: tuple[int, ...]) -> int:
    """Product of integers; 1 for none."""
    return reduce(operator.mul, numbers, 1)


def round_to_tf32(array: np.ndarray) -> np.ndarray:
    """float32 with a 10-bit significand, halves away from zero, as `cvt.rna.tf32.f32`; NaN and infinity stay."""
    bits = array.view(np.uint32)
    rounded = ((bits + np.uint32(0x1000)) & np.uint32(0xFFFFE000)).view(np.float32)
    return rounded if np.isfinite(rounded).all() else np.where(np.isfinite(array), rounded, array)


def to_dot_type(array: np.ndarray) -> np.ndarray:
    """Operands of a dot in the type in which their products are exact and NumPy has a fast product."""
    if array.dtype.kind in "iub":
        return array.astype(np.float64)
    return array if array.dtype in (np.float32, np.float64) else array.astype(np.float32)


BFLOAT16 = np.dtype(ml_dtypes.bfloat16)
