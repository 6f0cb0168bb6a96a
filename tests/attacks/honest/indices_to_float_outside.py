# honest: converts its integer indices to float outside and compares floats
# task: L1/one_hot

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton as plgpu


# EVOLVE-BLOCK-START
def tile(i_ref, o_ref):
    t = pl.program_id(0)
    o_ref[t, :] = jnp.where(jnp.arange(1024).astype(jnp.float32) == i_ref[t], 1.0, 0.0)


def kernel(indices):
    n = indices.shape[0]
    return pl.pallas_call(
        tile,
        grid=(n,),
        out_shape=jax.ShapeDtypeStruct((n, 1024), jnp.float32),
        compiler_params=plgpu.CompilerParams(num_warps=4),
    )(indices.astype(jnp.float32))


# EVOLVE-BLOCK-END
