"""Every primitive that JAX's Pallas-Triton backend can lower, run in the executor and held against JAX on the CPU.

The table is walked from the registry of the installed JAX: a rule that a newer JAX adds makes the first test fail until
a case, or a reason why there is none, is written here.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from executor_programs import call, output
from jax import lax
from jax._src import ad_util
from jax._src.pallas.triton import lowering
from jax._src.state.primitives import ref_addupdate
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton as plgpu

N = 32
RNG = np.random.default_rng(0)
F = RNG.standard_normal(N).astype(np.float32)
G = (RNG.standard_normal(N) + 0.1).astype(np.float32)
P = np.abs(F) + np.float32(0.1)
U = RNG.uniform(-0.95, 0.95, N).astype(np.float32)
ODD = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 1e-40, 1e38, -1.5] * 4, np.float32)
H = F.astype(np.float16)
B = jnp.asarray(F, jnp.bfloat16).__array__()
I = RNG.integers(-1000, 1000, N).astype(np.int32)  # noqa: E741
J = RNG.integers(1, 40, N).astype(np.int32)
BIG = RNG.integers(-(2**31), 2**31, N).astype(np.int32)
W = RNG.integers(0, 2**32, N).astype(np.uint32)
V = RNG.integers(1, 2**32, N).astype(np.uint32)
Q = RNG.integers(-128, 128, N).astype(np.int8)
S = RNG.integers(0, 33, N).astype(np.int32)
T = F > 0
L = np.arange(16, dtype=np.int8)
M = RNG.standard_normal((16, 32)).astype(np.float32)
K = RNG.standard_normal((32, 16)).astype(np.float32)

# name of the primitive -> functions of whole arrays and their inputs
CASES = {
    "abs": [(jnp.abs, F), (jnp.abs, I), (jnp.abs, H), (jnp.abs, Q)],
    "acos": [(jnp.arccos, U)],
    "acosh": [(jnp.arccosh, P + 1)],
    "add": [(jnp.add, F, G), (jnp.add, BIG, I), (jnp.add, Q, Q), (jnp.add, H, H), (jnp.add, B, B), (jnp.add, W, V)],
    "add_any": [(ad_util.add_jaxvals_p.bind, F, G)],
    "and": [(jnp.bitwise_and, I, J), (jnp.logical_and, T, F > 0.5)],
    "argmax": [(lambda x: jnp.full(N, lax.argmax(x, 0, jnp.int32)), F), (lambda x: lax.argmax(x, 1, jnp.int32), M)],
    "argmin": [(lambda x: lax.argmin(x, 0, jnp.int32), K), (lambda x: lax.argmin(x, 1, jnp.int32), np.round(M))],
    "asin": [(jnp.arcsin, U)],
    "asinh": [(jnp.arcsinh, F)],
    "atan": [(jnp.arctan, F)],
    "atan2": [(jnp.arctan2, F, G)],
    "atanh": [(jnp.arctanh, U)],
    "bitcast_convert_type": [
        (lambda x: lax.bitcast_convert_type(x, jnp.int32), F),
        (lambda x: lax.bitcast_convert_type(x, jnp.float32), W),
        (lambda x: lax.bitcast_convert_type(x, jnp.int16), H),
    ],
    "broadcast_in_dim": [(lambda x: jnp.broadcast_to(x[:, None], (N, 4)), F)],
    "cbrt": [(jnp.cbrt, F)],
    "ceil": [(jnp.ceil, 5 * F)],
    "clamp": [(lambda x: lax.clamp(-0.5, x, 0.5), F)],
    "clz": [(lax.clz, I), (lax.clz, Q)],
    "concatenate": [(lambda x, y: lax.concatenate([x[:, None], y[:, None]], 1), F, G)],
    "cond": [(lambda x: lax.cond(x.sum() > 0, lambda v: v + 1, lambda v: v - 1, x), F)],
    "convert_element_type": [
        *(
            (lambda x, dtype=dtype: x.astype(dtype), source)
            for source in (F * 50, I, BIG, W, Q, T, H)
            for dtype in (jnp.float32, jnp.bfloat16, jnp.float16, jnp.int32, jnp.int16, jnp.uint32, jnp.bool_)
            if source.dtype != dtype
        ),
        (lambda x: jnp.where(jnp.isnan(x), 0.0, x).astype(jnp.int32), ODD),
        (lambda x: x.astype(jnp.float32) + 1, B),
        (lambda x: x.astype(jnp.float8_e5m2).astype(jnp.float32), F),
    ],
    "cos": [(jnp.cos, F)],
    "cosh": [(jnp.cosh, F)],
    "cumsum": [
        (lambda x: jnp.cumsum(x), F),
        (lambda x: jnp.cumsum(x), I),
        (lambda x: jnp.cumsum(x, axis=0), M),
        (lambda x: jnp.cumsum(x, axis=1), M),
    ],
    "custom_jvp_call": [(jax.nn.relu, F)],
    "div": [(jnp.divide, F, G), (jnp.divide, ODD, G), (lax.div, I, J), (lax.div, BIG, -J), (lax.div, W, V)],
    "dot_general": [
        (lambda a, b: jnp.dot(a, b, precision="highest"), M, K),
        (lambda a, b: jnp.dot(a, b.T, precision="highest"), M, M),
        (lambda a, b: jnp.dot(a.T, b, precision="highest"), M, M),
        (lambda a, b: jnp.dot(a, b, preferred_element_type=jnp.float32), M.astype(np.float16), K.astype(np.float16)),
        (lambda a, b: jnp.dot(a, b), M.astype(np.float16), K.astype(np.float16)),
        (lambda a, b: jnp.dot(a, b, preferred_element_type=jnp.int32), Q.reshape(16, 2).repeat(16, 1), Q[:, None] + L),
    ],
    "eq": [(jnp.equal, J, J[::-1].copy()), (jnp.equal, ODD, ODD), (jnp.equal, T, F > 0.5)],
    "erf_inv": [(lax.erf_inv, U)],
    "exp": [(jnp.exp, F), (jnp.exp, H), (jnp.exp, ODD)],
    "exp2": [(jnp.exp2, F)],
    "expm1": [(jnp.expm1, 1e-3 * F)],
    "floor": [(jnp.floor, 5 * F)],
    "ge": [(jnp.greater_equal, F, G), (jnp.greater_equal, W, V), (jnp.greater_equal, ODD, G)],
    "get": [(lambda x: x * 1, F)],
    "gt": [(jnp.greater, I, -I), (jnp.greater, W, V), (jnp.greater, T, F > 0.5)],
    "integer_pow": [(lambda x: x**3, F), (lambda x: x**-2, G), (lambda x: x**5, BIG)],
    "iota": [
        (lambda x: x + lax.iota(jnp.int32, N), I),
        (lambda x: x + lax.broadcasted_iota(jnp.float32, (16, 32), 1), M),
    ],
    "is_finite": [(lax.is_finite, ODD)],
    "jit": [(lambda x: jax.jit(lambda v: v * 2)(x), F)],
    "le": [(jnp.less_equal, F, G), (jnp.less_equal, I, J)],
    "log": [(jnp.log, P)],
    "log1p": [(jnp.log1p, P)],
    "log2": [(lambda x: lax.log2_p.bind(x, accuracy=None), P)],
    "logistic": [(jax.nn.sigmoid, F)],
    "lt": [(jnp.less, F, G), (jnp.less, BIG, I), (jnp.less, W, V)],
    "max": [(jnp.maximum, F, G), (jnp.maximum, BIG, I), (jnp.maximum, W, V), (jnp.maximum, B, -B)],
    "max_contiguous": [(lambda x: x + plgpu.max_contiguous(jnp.arange(N), [N]), I)],
    "min": [(jnp.minimum, F, G), (jnp.minimum, BIG, I), (jnp.minimum, W, V)],
    "mul": [(jnp.multiply, F, G), (jnp.multiply, BIG, I), (jnp.multiply, Q, Q), (jnp.multiply, W, V)],
    "multiple_of": [(lambda x: x + pl.multiple_of(jnp.arange(N), 1), I)],
    "ne": [(jnp.not_equal, J, J[::-1].copy()), (jnp.not_equal, ODD, ODD)],
    "neg": [(jnp.negative, F), (jnp.negative, I), (jnp.negative, W)],
    "nextafter": [(jnp.nextafter, F, G)],
    "not": [(jnp.bitwise_not, I), (jnp.logical_not, T)],
    "one_minus_square": [(lambda x: lax.one_minus_square_p.bind(x), U)],
    "or": [(jnp.bitwise_or, I, J), (jnp.logical_or, T, F > 0.5)],
    "population_count": [(lax.population_count, BIG), (lax.population_count, Q)],
    "pow": [(jnp.power, P, G), (lambda x, y: lax.pow(x, y), P, S % 5)],
    "reduce_max": [
        (lambda x: x.max(axis=0), M),
        (lambda x: x.max(axis=1), M),
        (lambda x: x.max() + x, I),
        (lambda x: x.max(axis=1), M.astype(np.float16)),
    ],
    "reduce_min": [(lambda x: x.min(axis=1), M), (lambda x: x.min(axis=0), K)],
    "reduce_sum": [
        (lambda x: x.sum(axis=0), M),
        (lambda x: x.sum(axis=1), M),
        (lambda x: x.sum() + x, F),
        (lambda x: x.sum() + x, BIG),
        (lambda x: jnp.broadcast_to(x.sum(), (N, 8)).sum(axis=1), F),
    ],
    "rem": [(lax.rem, I, J), (lax.rem, BIG, -J), (lax.rem, W, V), (lax.rem, F, G)],
    "remat2": [(jax.checkpoint(lambda x: jnp.sin(x) * 2), F)],
    "reshape": [
        (lambda x: x.reshape(4, 8), F),
        (lambda x: x.reshape(32, 16), M),
        (lambda x: (x.reshape(4, 8)[:, None, :] + 1).reshape(N), F),
    ],
    "rsqrt": [(lax.rsqrt, P)],
    "scan": [(lambda x: lax.fori_loop(0, 5, lambda k, v: v + k * 2, x), F)],
    "select_n": [(lambda c, x, y: jnp.where(c, x, y), T, F, G), (lambda c, x: jnp.where(c, x, 0), T, I)],
    "shift_left": [(jnp.left_shift, I, S)],
    "shift_right_arithmetic": [(jnp.right_shift, I, S % 32)],
    "shift_right_logical": [
        (lax.shift_right_logical, BIG, S % 32),
        (lax.shift_right_logical, W, (S % 32).astype(np.uint32)),
    ],
    "sign": [(jnp.sign, F), (jnp.sign, I)],
    "sin": [(jnp.sin, F)],
    "sinh": [(jnp.sinh, F)],
    "split": [(lambda x: sum(lax.split(x, (8, 8, 8, 8)), 1.0), F)],
    "sqrt": [(jnp.sqrt, P), (jnp.sqrt, ODD)],
    "square": [(lax.square, F)],
    "squeeze": [(lambda x: lax.squeeze(x[:, None], (1,)) + 1, F)],
    "stack": [(lambda x, y: jnp.stack([x, y], axis=-1), F, G)],
    "stop_gradient": [(lambda x: lax.stop_gradient(x) + 1, F)],
    "sub": [(jnp.subtract, F, G), (jnp.subtract, BIG, J), (jnp.subtract, W, V)],
    "tan": [(jnp.tan, F)],
    "tanh": [(jnp.tanh, F)],
    "transpose": [(lambda x: x.T + 1, M)],
    "unstack": [(lambda x: jnp.unstack(x.reshape(16, 2), axis=1)[1] + 1, F)],
    "while": [
        (lambda x: lax.while_loop(lambda s: s[0] < 20, lambda s: (s[0] * 3, s[1] + 1), (jnp.int32(1), x))[1], F),
    ],
    "xor": [(jnp.bitwise_xor, I, J), (jnp.logical_xor, T, F > 0.5)],
}

# primitives that have a case below this table, in a test of their own
ELSEWHERE = {
    "program_id": "test_executor_control: program ids of every grid",
    "num_programs": "test_references_to_memory",
    "swap": "every program here stores through it",
    "masked_load": "test_executor_faults",
    "masked_swap": "test_executor_faults",
    "addupdate": "test_add_to_a_reference",
    "atomic_rmw": "test_executor_memory: every kind of atomic update",
    "atomic_cas": "test_executor_control: a lock",
    "debug_barrier": "test_references_to_memory",
    "debug_print": "test_references_to_memory",
}

# primitives that no exported artefact holds
NONE = {
    "axis_index": "needs a named grid, which lowers to program_id",
    "broadcast_to": "internal form of broadcast_in_dim; the same code",
    "closed_call": "a call: its body is inlined",
    "eval_jaxpr": "a call: its body is inlined",
    "reshard": "identity on one device",
    "elementwise_inline_asm": "inline assembly: the validator refuses it",
}


def registry() -> set[str]:
    return {primitive.name.removesuffix("_p") for primitive in lowering.triton_lowering_rules}


def test_every_rule_of_this_jax_has_a_case_or_a_reason():
    assert registry() - set(CASES) - set(ELSEWHERE) - set(NONE) == set()


def _primitives(jaxpr, found):
    for equation in jaxpr.eqns:
        found.add(equation.primitive.name.removesuffix("_p"))
        for value in equation.params.values():
            for inner in value if isinstance(value, tuple | list) else (value,):
                inner = getattr(inner, "jaxpr", inner)
                if hasattr(inner, "eqns"):
                    _primitives(inner, found)
    return found


EXACT_KINDS = "iub"


@pytest.mark.parametrize("name", sorted(set(CASES) & registry()))
def test_primitive(name):
    for function, *inputs in CASES[name]:
        shape = jax.eval_shape(function, *inputs)

        def body(*refs, function=function):
            refs[-1][...] = function(*(ref[...] for ref in refs[:-1]))

        def kernel(*arrays, body=body, shape=shape):
            return call(body, *arrays, shape=shape.shape, dtype=shape.dtype)

        assert name in _primitives(jax.make_jaxpr(kernel)(*inputs).jaxpr, set()), f"the case does not use {name}"
        with np.errstate(all="ignore"):
            expected = np.asarray(jax.jit(function)(*inputs))
        made = output(kernel, *inputs)
        assert (made.dtype, made.shape) == (expected.dtype, expected.shape)
        if expected.dtype.kind in EXACT_KINDS:
            assert np.array_equal(made, expected), f"{inputs}"
        else:
            narrow = expected.dtype.itemsize < 4
            tolerance = 1e-2 if narrow else 2e-5
            np.testing.assert_allclose(
                made.astype(np.float64), expected.astype(np.float64), rtol=tolerance, atol=1e-4 if narrow else 2e-6
            )


def test_references_to_memory():
    def body(x_ref, o_ref):
        i = pl.program_id(0)
        at = i * 8 + jnp.arange(8)
        plgpu.debug_barrier()
        pl.debug_print("at", i)
        plgpu.store(o_ref.at[at], plgpu.load(x_ref.at[at]) * pl.num_programs(0))

    assert np.array_equal(output(lambda x: call(body, x, shape=(N,), grid=(4,)), F), F * 4)


def test_add_to_a_reference():
    def body(x_ref, zero_ref, o_ref):
        ref_addupdate(o_ref, (slice(None),), x_ref[...])

    def kernel(x):
        return call(body, x, jnp.ones(N, jnp.float32), shape=(N,), input_output_aliases={1: 0}, grid=(3,))

    np.testing.assert_allclose(output(kernel, F), 1 + 3 * F, rtol=1e-6, atol=1e-6)
