"""Rounding: what the tensor cores do to dots, and integer arithmetic as the hardware does it."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest
from executor_programs import call, output
from hypothesis import given
from hypothesis import strategies as st
from jax import lax

from pallas_evo.running.executor import operations

RNG = np.random.default_rng(3)
A = RNG.standard_normal((64, 256)).astype(np.float32)
B = RNG.standard_normal((256, 64)).astype(np.float32)


def dot_error(a, b, **keywords):
    """Normwise error of a Pallas dot against float64."""

    def body(a_ref, b_ref, o_ref):
        o_ref[...] = jnp.dot(a_ref[...], b_ref[...], preferred_element_type=jnp.float32, **keywords)

    made = output(lambda a, b: call(body, a, b, shape=(64, 64)), a, b)
    exact = a.astype(np.float64) @ b.astype(np.float64)
    return np.linalg.norm(made - exact) / np.linalg.norm(exact)


def test_a_float32_dot_is_tf32_unless_it_asks_for_more():
    assert 1e-4 < dot_error(A, B) < 6e-4  # 2.9e-4 measured on an H200
    assert dot_error(A, B, precision="highest") < 1e-6
    assert dot_error(A, B, precision=lax.DotAlgorithmPreset.TF32_TF32_F32_X3) < 1e-6
    assert 1e-4 < dot_error(A, B, precision=lax.DotAlgorithmPreset.TF32_TF32_F32) < 6e-4


@pytest.mark.parametrize("dtype", [jnp.float16, jnp.bfloat16])
def test_narrow_operands_are_added_in_float32(dtype):
    assert dot_error(A.astype(dtype), B.astype(dtype)) < 1e-6


def test_bfloat16_products_of_float32_are_told_from_tf32():
    def kernel(a, b):
        def body(a_ref, b_ref, o_ref):
            o_ref[...] = jnp.dot(
                a_ref[...].astype(jnp.bfloat16), b_ref[...].astype(jnp.bfloat16), preferred_element_type=jnp.float32
            )

        return call(body, a, b, shape=(64, 64))

    exact = A.astype(np.float64) @ B
    assert 1.5e-3 < np.linalg.norm(output(kernel, A, B) - exact) / np.linalg.norm(exact) < 4e-3


@given(st.floats(width=32))
def test_tf32_has_ten_bits_of_significand_halves_away_from_zero(number):
    x = np.array([number], np.float32)
    made = operations.round_to_tf32(x)
    if np.isnan(number):
        assert np.isnan(made)[0]
        return
    assert made.view(np.uint32)[0] & 0x1FFF == 0 or np.isinf(made[0])
    with np.errstate(over="ignore"):
        step = 2.0 ** (max(np.frexp(np.float64(number))[1], -125) - 11)
    if np.isfinite(made[0]):
        assert abs(float(made[0]) - float(x[0])) <= step / 2


def test_long_sums_keep_the_accuracy_of_a_tree():
    x = RNG.uniform(0.5, 1.5, (2, 8192)).astype(np.float32)

    def body(x_ref, o_ref):
        o_ref[...] = x_ref[...].sum(axis=1)

    made = output(lambda x: call(body, x, shape=(2,)), x)
    np.testing.assert_allclose(made, x.astype(np.float64).sum(axis=1), rtol=3e-7)


def wrap(number, bits, signed=True):
    number %= 1 << bits
    return number - (1 << bits) if signed and number >> (bits - 1) else number


def towards_zero(a, b):
    return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


INTEGERS = {
    "arith.addi": lambda a, b, bits: a + b,
    "arith.subi": lambda a, b, bits: a - b,
    "arith.muli": lambda a, b, bits: a * b,
    "arith.divsi": lambda a, b, bits: towards_zero(a, b) if b else None,
    "arith.remsi": lambda a, b, bits: a - b * towards_zero(a, b) if b else None,
    "arith.floordivsi": lambda a, b, bits: a // b if b else None,
    "arith.ceildivsi": lambda a, b, bits: -(-a // b) if b else None,
    "arith.divui": lambda a, b, bits: wrap(a, bits, False) // wrap(b, bits, False) if b else None,
    "arith.remui": lambda a, b, bits: wrap(a, bits, False) % wrap(b, bits, False) if b else None,
    "arith.andi": lambda a, b, bits: a & b,
    "arith.ori": lambda a, b, bits: a | b,
    "arith.xori": lambda a, b, bits: a ^ b,
    "arith.maxsi": lambda a, b, bits: max(a, b),
    "arith.minsi": lambda a, b, bits: min(a, b),
    "arith.maxui": lambda a, b, bits: max(a, b, key=lambda n: wrap(n, bits, False)),
    "arith.minui": lambda a, b, bits: min(a, b, key=lambda n: wrap(n, bits, False)),
    "arith.shli": lambda a, b, bits: a << wrap(b, bits, False) if 0 <= b < bits else 0,
    "arith.shrsi": lambda a, b, bits: a >> b if 0 <= b < bits else (-1 if a < 0 else 0),
    "arith.shrui": lambda a, b, bits: wrap(a, bits, False) >> b if 0 <= b < bits else 0,
    "tt.mulhiui": lambda a, b, bits: wrap(a, bits, False) * wrap(b, bits, False) >> bits,
}


@pytest.mark.parametrize("name", sorted(INTEGERS))
@given(st.data())
def test_integers_wrap_and_never_fail(name, data):
    bits = data.draw(st.sampled_from([8, 16, 32, 64]))
    if name == "tt.mulhiui" and bits < 32:
        bits = 32
    numbers = st.integers(-(1 << bits - 1), (1 << bits - 1) - 1) | st.integers(-3, bits + 2)
    a, b = data.draw(numbers), data.draw(numbers)
    arrays = [np.array([n], f"i{bits // 8}") for n in (a, b)]
    with np.errstate(all="ignore"):
        made = operations.INTEGER_OPERATIONS[name](*arrays)
    assert made.dtype == arrays[0].dtype
    expected = INTEGERS[name](a, b, bits)
    if expected is not None:
        assert int(made[0]) == wrap(expected, bits), (a, b)


@given(st.booleans(), st.booleans(), st.sampled_from(sorted(set(INTEGERS) - {"tt.mulhiui"})))
def test_one_bit_integers_are_minus_one_and_zero(a, b, name):
    expected = INTEGERS[name](-int(a), -int(b), 1)
    with np.errstate(all="ignore"):
        made = operations.INTEGER_OPERATIONS[name](np.array([a]), np.array([b]))
    assert made.dtype == np.bool_
    if expected is not None and "sh" not in name:
        assert bool(made[0]) == bool(expected & 1)


@given(st.floats(width=32), st.sampled_from(["i1", "i2", "i4", "i8"]), st.booleans())
def test_floats_become_integers_by_saturating(number, kind, signed):
    dtype = np.dtype(kind)
    bits = 8 * dtype.itemsize
    low, high = (-(1 << bits - 1), (1 << bits - 1) - 1) if signed else (0, (1 << bits) - 1)
    made = operations.to_integer(np.array([number], np.float32), dtype, signed=signed)
    number = float(np.float32(number))
    clamped = 0 if np.isnan(number) else low if number <= low else high if number >= high else int(number)
    assert wrap(int(made[0]), bits, signed) == clamped


@pytest.mark.parametrize(("name", "function"), [("math.ctlz", 0), ("math.cttz", 1), ("math.ctpop", 2)])
@given(st.integers(0, 2**32 - 1))
def test_bit_counts(name, function, number):
    text = f"{number:032b}"
    expected = [
        len(text) - len(text.lstrip("0")),
        len(text) - len(text.rstrip("0")),
        text.count("1"),
    ][function]
    made = operations.INTEGER_OPERATIONS[name](np.array([number], np.uint32).view(np.int32))
    assert int(made[0]) == expected


def test_comparisons_of_floats_with_nan():
    a, b = np.array([1.0, 1.0, np.nan, 2.0], np.float32), np.array([1.0, 2.0, 1.0, 1.0], np.float32)
    names = ["false", "oeq", "ogt", "oge", "olt", "ole", "one", "ord"]
    names += ["ueq", "ugt", "uge", "ult", "ule", "une", "uno", "true"]
    said = {name: function(a, b).tolist() for name, function in zip(names, operations.COMPARE_FLOATS, strict=True)}
    assert said["oeq"] == [True, False, False, False]
    assert said["ueq"] == [True, False, True, False]
    assert said["one"] == [False, True, False, True]
    assert said["une"] == [False, True, True, True]
    assert said["uno"] == [False, False, True, False]
    assert said["olt"] == [False, True, False, False]
    assert said["ult"] == [False, True, True, False]
    for name in ("oeq", "ogt", "oge", "olt", "ole", "one"):  # unordered twins differ at the NaN only
        twin = said["u" + (name[1:] if name != "one" else "ne")]
        assert twin == [value or nan for value, nan in zip(said[name], said["uno"], strict=True)]


def test_maximum_and_minimum_of_a_nan():
    x, y = np.array([np.nan, 1.0], np.float32), np.array([2.0, np.nan], np.float32)
    assert operations.FLOAT_OPERATIONS["arith.maxnumf"](x, y).tolist() == [2.0, 1.0]
    assert np.isnan(operations.FLOAT_OPERATIONS["arith.maximumf"](x, y)).all()
    assert operations.FLOAT_OPERATIONS["arith.minnumf"](x, y).tolist() == [2.0, 1.0]
    assert np.isnan(operations.FLOAT_OPERATIONS["arith.minimumf"](x, y)).all()
