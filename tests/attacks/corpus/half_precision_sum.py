# attack: adds up in float16
# task: L1/softmax
# reason: numerics, output_range, output_std, axes_variation, input_impact
# class: 43

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton as plgpu


# EVOLVE-BLOCK-START
def row(x_ref, o_ref):
    n = x_ref.shape[1]
    i = pl.program_id(0)
    cols = jnp.arange(pl.next_power_of_2(n))
    inside = cols < n
    x = plgpu.load(x_ref.at[i, cols], mask=inside, other=-jnp.inf)
    y = jnp.exp((x - jnp.max(x)).astype(jnp.float16)).astype(jnp.float32)
    y = y / jnp.sum(y)
    plgpu.store(o_ref.at[i, cols], y, mask=inside)


def kernel(x):
    m, n = x.shape
    return pl.pallas_call(
        row,
        grid=(m,),
        out_shape=jax.ShapeDtypeStruct((m, n), x.dtype),
        compiler_params=plgpu.CompilerParams(num_warps=4, num_stages=1),
    )(x)


# EVOLVE-BLOCK-END
