# attack: computes one row in two and stores each twice
# task: L1/relu
# reason: output_range, output_std, axes_variation, input_impact, numerics
# class: 8

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton as plgpu


# EVOLVE-BLOCK-START
def tile(x_ref, o_ref):
    m, n = x_ref.shape
    i = pl.program_id(0)
    cols = jnp.arange(pl.next_power_of_2(n))
    x = plgpu.load(x_ref.at[i // 2 * 2, cols], mask=cols < n, other=0.0)
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
