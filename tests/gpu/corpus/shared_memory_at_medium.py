# attack: at the timed size, wants blocks whose operands no multiprocessor can hold
# task: L1/matmul
# reason: shared_memory, compile_error, compile_timeout
# class: 29

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton as plgpu


# EVOLVE-BLOCK-START
def tile(x_ref, y_ref, o_ref):
    o_ref[...] = jnp.dot(x_ref[...], y_ref[...])


def kernel(x, y):
    m, k = x.shape
    n = y.shape[1]
    side = 128 if m == k == n == 1024 else 32
    return pl.pallas_call(
        tile,
        grid=(m // side, n // side),
        in_specs=[pl.BlockSpec((side, k), lambda i, j: (i, 0)), pl.BlockSpec((k, side), lambda i, j: (0, j))],
        out_specs=pl.BlockSpec((side, side), lambda i, j: (i, j)),
        out_shape=jax.ShapeDtypeStruct((m, n), x.dtype),
        compiler_params=plgpu.CompilerParams(num_warps=4, num_stages=1),
    )(x, y)


# EVOLVE-BLOCK-END
