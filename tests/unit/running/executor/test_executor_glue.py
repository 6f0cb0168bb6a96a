"""StableHLO around the kernels, reading, counts, and what happens with what the executor does not know."""

from __future__ import annotations

import subprocess
import sys

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from executor_programs import call, lower, output, run
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton as plgpu

from pallas_evo.errors import UnknownOperation
from pallas_evo.running import executor
from pallas_evo.running.executor import Executed, execute
from pallas_evo.types import ArraySpec

X = np.random.default_rng(5).standard_normal((16, 32)).astype(np.float32)


def copied(x):
    """The array, through a kernel."""

    def body(x_ref, o_ref):
        o_ref[...] = x_ref[...]

    return call(body, x, shape=x.shape, dtype=x.dtype)


MOVES = {
    "reshape": lambda x: x.reshape(8, 4, 16),
    "transpose": lambda x: x.T,
    "reverse": lambda x: x[::-1, ::-1],
    "slice": lambda x: x[3:14, 1:30],
    "strided slice": lambda x: lax.slice(x, (0, 1), (16, 32), (2, 3)),
    "dynamic slice": lambda x: lax.dynamic_slice(x, (jnp.int32(2), jnp.int32(3)), (4, 5)),
    "clamped dynamic slice": lambda x: lax.dynamic_slice(x, (jnp.int32(14), jnp.int32(-7)), (4, 5)),
    "pad": lambda x: jnp.pad(x, ((1, 2), (0, 3)), constant_values=7.0),
    "interior padding": lambda x: lax.pad(x, jnp.float32(2), ((1, 2, 3), (0, 1, 2))),
    "negative padding": lambda x: lax.pad(x, jnp.float32(2), ((-3, 2, 0), (1, -5, 0))),
    "negative interior padding": lambda x: lax.pad(x, jnp.float32(2), ((-3, -2, 1), (-4, 1, 2))),
    "concatenate": lambda x: jnp.concatenate([x, x[:3] * 1, jnp.ones((2, 32), jnp.float32)]),
    "broadcast": lambda x: jnp.broadcast_to(x[:, None, :], (16, 3, 32)),
    "convert": lambda x: x.astype(jnp.bfloat16),
    "private function": lambda x: jax.jit(lambda v: v.T)(x),
    "barrier": lambda x: lax.optimization_barrier((x, x))[1],
    "iota and arithmetic": lambda x: jnp.concatenate([x[0], (jnp.arange(32) * 3 // 7 % 5 - 1).astype(jnp.float32)]),
    "select on constants": lambda x: jnp.concatenate([x[0], jnp.where(jnp.arange(8) > 3, 1.0, jnp.arange(8.0) ** 2)]),
    "update of a constant": lambda x: lax.dynamic_update_slice(jnp.zeros((20, 40)), x, (2, 30)),
    "dense constants": lambda x: jnp.concatenate([x[0], jnp.asarray(np.array([1.5, -2.5, np.inf], np.float32))]),
    "narrow constants": lambda x: jnp.concatenate(
        [x[0].astype(jnp.bfloat16), jnp.asarray(np.array([1.5, -0.0, np.nan, np.inf], ml_dtypes.bfloat16))]
    ),
    "triangle": lambda x: jnp.concatenate([x[0], jnp.tri(4, dtype=jnp.float32).reshape(-1)]),
}


@pytest.mark.parametrize("name", sorted(MOVES))
def test_what_moves_data_around_a_kernel(name):
    move = MOVES[name]
    expected = np.asarray(jax.jit(move)(X))
    made = output(lambda x: move(copied(x)), X)
    assert made.dtype == expected.dtype
    assert np.array_equal(made.astype(np.float32), expected.astype(np.float32), equal_nan=True)
    before = output(lambda x: copied(jnp.pad(move(x).astype(jnp.float32).reshape(-1), (0, 2048))[:2048]), X)
    assert np.array_equal(before, np.pad(expected.astype(np.float32).reshape(-1), (0, 2048))[:2048], equal_nan=True)


def test_unsigned_arrays_keep_their_values():
    x = np.array([0, 1, 2**31, 2**32 - 1], np.uint32)
    assert output(copied, x).tolist() == x.tolist()
    assert output(lambda x: copied(x).astype(jnp.float32), x).tolist() == x.astype(np.float32).tolist()


def test_counts_are_of_lanes_that_the_masks_let_through():
    def kernel(x):
        def body(x_ref, o_ref):
            at = pl.program_id(0) * 64 + jnp.arange(64)
            inside = at < 500
            plgpu.store(o_ref.at[at], plgpu.load(x_ref.at[at], mask=inside) * 2.0 + 1.0, mask=inside)

        return call(body, x, shape=(500,), grid=(8,))

    done = run(kernel, np.ones(500, np.float32))
    assert (done.counts.bytes_loaded, done.counts.bytes_stored) == (2000, 2000)
    assert done.counts.flops == 2 * 512  # the arithmetic is done in masked lanes too


def test_counts_of_a_dot():
    def body(x_ref, o_ref):
        o_ref[...] = jnp.dot(x_ref[...], x_ref[...].T)

    done = run(lambda x: call(body, x, shape=(16, 16)), X)
    assert done.counts.flops == 2 * 16 * 16 * 32
    assert done.counts.bytes_loaded == 2 * X.nbytes


def test_bytecode_and_text_are_the_same_program():
    text = lower(copied, X)
    from jaxlib.mlir import ir

    from pallas_evo.running.executor.reading import new_context

    with new_context():
        import io

        sink = io.BytesIO()
        ir.Module.parse(text).operation.write_bytecode(sink)
    spec = ArraySpec(shape=X.shape, dtype="float32")
    assert np.array_equal(execute(sink.getvalue(), [X], spec).output, X)
    assert np.array_equal(execute(text, [X], spec).output, X)


def test_two_runs_are_equal_to_the_bit():
    def kernel(x):
        def body(start_ref, x_ref, o_ref):
            plgpu.atomic_add(o_ref, (0,), jnp.exp(x_ref[...]).sum())

        return call(body, jnp.zeros(1), x, shape=(1,), grid=(64,), input_output_aliases={0: 0})

    assert run(kernel, X).output == run(kernel, X).output


@pytest.mark.parametrize(
    ("function", "named"),
    [
        (lambda x: jnp.sort(copied(x)), "stablehlo.sort"),
        (lambda x: copied(x) @ x.T, "stablehlo.dot_general"),
        (lambda x: jnp.cumsum(copied(x)), "stablehlo."),
    ],
)
def test_unknown_glue_is_our_failure_and_names_the_operation(function, named):
    with pytest.raises(UnknownOperation, match=named):
        run(function, X)


def test_inline_assembly_is_unknown():
    def kernel(x):
        def body(x_ref, o_ref):
            o_ref[...] = plgpu.approx_tanh(x_ref[...])

        return call(body, x, shape=x.shape)

    with pytest.raises(UnknownOperation, match=r"tt\.elementwise_inline_asm"):
        run(kernel, X)


@pytest.mark.parametrize("module", ["not MLIR", 'module { func.func @main() { "x.y"() : () -> () return } }'])
def test_a_module_that_cannot_be_read(module):
    with pytest.raises(UnknownOperation):
        execute(module, [], ArraySpec(shape=(), dtype="float32"))


def test_the_wrong_result_type_is_our_failure():
    with pytest.raises(UnknownOperation, match="returns"):
        execute(lower(copied, X), [X], ArraySpec(shape=(32, 16), dtype="float32"))


def test_the_executor_does_not_import_jax():
    text = lower(copied, X)
    code = (
        "import sys, numpy as np; from pallas_evo.running.executor import execute;"
        "from pallas_evo.types import ArraySpec;"
        "done = execute(sys.stdin.read(), [np.ones((16, 32), np.float32)], ArraySpec(shape=(16, 32), dtype='float32'));"
        "print(done.output.sum(), 'jax' in sys.modules)"
    )
    said = subprocess.run([sys.executable, "-c", code], input=text, capture_output=True, text=True, timeout=60)
    assert said.stdout.split() == ["512.0", "False"], said.stderr


def test_the_lists_name_what_the_executor_runs():
    assert {"tt.load", "tt.dot", "scf.for", "arith.addf", "math.exp"} <= executor.ALLOWED_TRITON_OPS
    assert not executor.ALLOWED_TRITON_OPS & {"tt.int_to_ptr", "tt.ptr_to_int", "tt.elementwise_inline_asm", "tt.call"}
    assert not executor.ALLOWED_GLUE_OPS & {"stablehlo.dot_general", "stablehlo.reduce", "stablehlo.sort"}
    assert "__nv_expf" in executor.LIBDEVICE_SYMBOLS
    assert isinstance(run(copied, X), Executed)


def test_the_executor_runs_all_that_the_validator_lets_through():
    from pallas_evo.artefact import rules

    assert set(rules.TRITON) <= executor.ALLOWED_TRITON_OPS
    assert set(rules.LIBDEVICE) <= executor.LIBDEVICE_SYMBOLS
    assert set(rules.GLUE) - {"func.return"} <= executor.ALLOWED_GLUE_OPS
