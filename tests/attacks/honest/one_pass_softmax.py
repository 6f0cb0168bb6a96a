# honest: online softmax: running maximum and sum in one pass, a second pass writes
# task: L1/softmax

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton as plgpu


# EVOLVE-BLOCK-START
def row(x_ref, o_ref):
    n = x_ref.shape[1]
    i = pl.program_id(0)

    def read(block):
        cols = block * 128 + jnp.arange(128)
        return cols, plgpu.load(x_ref.at[i, cols], mask=cols < n, other=-jnp.inf)

    def step(block, state):
        top, total = state
        _, x = read(block)
        new = jnp.maximum(top, jnp.max(x))
        return new, total * jnp.exp(top - new) + jnp.sum(jnp.exp(x - new))

    top, total = lax.fori_loop(0, pl.cdiv(n, 128), step, (jnp.float32(-1e30), jnp.float32(0.0)))

    def write(block, _):
        cols, x = read(block)
        plgpu.store(o_ref.at[i, cols], jnp.exp(x - top) / total, mask=cols < n)

    lax.fori_loop(0, pl.cdiv(n, 128), write, None)


def kernel(x):
    m, n = x.shape
    return pl.pallas_call(
        row,
        grid=(m,),
        out_shape=jax.ShapeDtypeStruct((m, n), x.dtype),
        compiler_params=plgpu.CompilerParams(num_warps=2),
    )(x)


# EVOLVE-BLOCK-END
