# attack: slices outside at a place that the data names
# task: L1/one_hot
# reason: glue_compute, forbidden_op
# class: 13

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton as plgpu


# EVOLVE-BLOCK-START
def copy(i_ref, o_ref):
    t = pl.program_id(0)
    o_ref[t, :] = jnp.where(jnp.arange(1024) == i_ref[t], 1.0, 0.0).astype(jnp.float32)


def kernel(indices):
    n = indices.shape[0]
    moved = lax.dynamic_slice(jnp.concatenate([indices, indices]), (indices[0],), (n,))
    return pl.pallas_call(
        copy,
        grid=(n,),
        out_shape=jax.ShapeDtypeStruct((n, 1024), jnp.float32),
        compiler_params=plgpu.CompilerParams(num_warps=4),
    )(moved)


# EVOLVE-BLOCK-END
