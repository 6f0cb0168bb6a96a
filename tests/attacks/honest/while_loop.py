# honest: walks the row in a while loop on the device
# task: L1/reduce_mean

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton as plgpu


# EVOLVE-BLOCK-START
def rows(x_ref, o_ref):
    n = x_ref.shape[1]
    i = pl.program_id(0)

    def more(state):
        return state[0] < n

    def step(state):
        at, total = state
        cols = at + jnp.arange(128)
        return at + 128, total + plgpu.load(x_ref.at[i, cols], mask=cols < n, other=0.0)

    _, total = lax.while_loop(more, step, (jnp.int32(0), jnp.zeros(128, jnp.float32)))
    o_ref[i] = jnp.sum(total) / n


def kernel(x):
    m, _n = x.shape
    return pl.pallas_call(
        rows,
        grid=(m,),
        out_shape=jax.ShapeDtypeStruct((m,), x.dtype),
        compiler_params=plgpu.CompilerParams(num_warps=2),
    )(x)


# EVOLVE-BLOCK-END
