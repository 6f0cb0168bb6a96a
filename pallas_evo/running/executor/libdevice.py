"""libdevice: the functions that Pallas calls by symbol, and the few that NumPy lacks."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np


def reciprocal_root(a: np.ndarray) -> np.ndarray:
    """1 / sqrt(a)."""
    return np.divide(a.dtype.type(1), np.sqrt(a))


def exp2(a: np.ndarray) -> np.ndarray:
    """2 to the power of a."""
    return np.exp2(a)


def copysign(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """The magnitude of a with the sign of b."""
    return np.copysign(a, b)


def erf(a: np.ndarray) -> np.ndarray:
    """The error function."""
    from scipy import special  # no Pallas kernel reaches it today: import it only then

    return special.erf(a)


def erfc(a: np.ndarray) -> np.ndarray:
    """1 - erf(a), accurate for large a."""
    from scipy import special

    return special.erfc(a)


def _bits(a: np.ndarray) -> np.ndarray:
    return a.view(f"u{a.dtype.itemsize}")


def bit_count(a: np.ndarray) -> np.ndarray:
    """How many bits are set, in the type of a."""
    return np.bitwise_count(_bits(a)).astype(a.dtype)


def leading_zeros(a: np.ndarray) -> np.ndarray:
    """How many bits above the highest set one are 0."""
    bits = _bits(a)
    for distance in (1, 2, 4, 8, 16, 32):
        if distance < 8 * a.dtype.itemsize:
            bits = bits | (bits >> bits.dtype.type(distance))
    return bit_count((~bits).view(a.dtype))


def trailing_zeros(a: np.ndarray) -> np.ndarray:
    """How many bits below the lowest set one are 0."""
    bits = _bits(a)
    return bit_count((~bits & (bits - bits.dtype.type(1))).view(a.dtype))


def _as_int32(function: Callable[..., np.ndarray]) -> Callable[..., np.ndarray]:
    return lambda a: function(a).astype(np.int32)


def _integer_power(a: np.ndarray, exponent: np.ndarray) -> np.ndarray:
    return np.power(a, exponent.astype(a.dtype))


_FLOAT_FUNCTIONS: dict[str, Callable[..., np.ndarray]] = {
    "acos": np.arccos,
    "acosh": np.arccosh,
    "asin": np.arcsin,
    "asinh": np.arcsinh,
    "atan": np.arctan,
    "atan2": np.arctan2,
    "atanh": np.arctanh,
    "cbrt": np.cbrt,
    "ceil": np.ceil,
    "copysign": np.copysign,
    "cos": np.cos,
    "cosh": np.cosh,
    "erf": erf,
    "erfc": erfc,
    "exp": np.exp,
    "exp10": lambda a: np.power(a.dtype.type(10), a),
    "exp2": exp2,
    "expm1": np.expm1,
    "fabs": np.abs,
    "floor": np.floor,
    "fmax": np.fmax,
    "fmin": np.fmin,
    "fmod": np.fmod,
    "log": np.log,
    "log10": np.log10,
    "log1p": np.log1p,
    "log2": np.log2,
    "nextafter": np.nextafter,
    "pow": np.power,
    "powi": _integer_power,
    "rint": np.rint,
    "rsqrt": reciprocal_root,
    "sin": np.sin,
    "sinh": np.sinh,
    "sqrt": np.sqrt,
    "tan": np.tan,
    "tanh": np.tanh,
    "trunc": np.trunc,
}

LIBDEVICE: dict[str, Callable[..., np.ndarray]] = {
    "__nv_abs": np.abs,
    "__nv_llabs": np.abs,
    "__nv_popc": bit_count,
    "__nv_popcll": _as_int32(bit_count),
    "__nv_clz": leading_zeros,
    "__nv_clzll": _as_int32(leading_zeros),
    **{f"__nv_{name}{suffix}": function for name, function in _FLOAT_FUNCTIONS.items() for suffix in ("", "f")},
}
"""Symbol -> function. The symbol with the suffix f takes float32, the one without float64."""
LIBDEVICE["__nv_powif"] = _integer_power
