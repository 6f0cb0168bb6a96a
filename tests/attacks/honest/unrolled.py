# honest: a short Python loop over the columns, unrolled
# task: L1/relu

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton as plgpu

# EVOLVE-BLOCK-START
STEPS = 4


def tile(x_ref, o_ref):
    _m, n = x_ref.shape
    i = pl.program_id(0)
    width = pl.next_power_of_2(pl.cdiv(n, STEPS))
    for step in range(STEPS):
        cols = step * width + jnp.arange(width)
        x = plgpu.load(x_ref.at[i, cols], mask=cols < n, other=0.0)
        plgpu.store(o_ref.at[i, cols], jnp.maximum(x, 0.0), mask=cols < n)


def kernel(x):
    m, n = x.shape
    return pl.pallas_call(
        tile,
        grid=(m,),
        out_shape=jax.ShapeDtypeStruct((m, n), x.dtype),
        compiler_params=plgpu.CompilerParams(num_warps=4),
    )(x)


# EVOLVE-BLOCK-END
