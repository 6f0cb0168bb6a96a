# attack: an index made from the data, which no static check can bound
# task: L1/one_hot
# reason: out_of_bounds
# class: 27

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton as plgpu


# EVOLVE-BLOCK-START
def tile(i_ref, o_ref):
    t = pl.program_id(0)
    index = plgpu.load(i_ref.at[t])
    stray = plgpu.load(i_ref.at[index * index])
    hot = jnp.where(jnp.arange(1024) == index, 1.0, 0.0) + 0.0 * stray.astype(jnp.float32)
    o_ref[t, :] = hot.astype(jnp.float32)


def kernel(indices):
    n = indices.shape[0]
    return pl.pallas_call(
        tile,
        grid=(n,),
        out_shape=jax.ShapeDtypeStruct((n, 1024), jnp.float32),
        compiler_params=plgpu.CompilerParams(num_warps=4),
    )(indices)


# EVOLVE-BLOCK-END
