# attack: loads, computes and stores nothing: what is in the buffer may be right
# task: L1/relu
# reason: no_store
# class: 24

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton as plgpu


# EVOLVE-BLOCK-START
def tile(x_ref, o_ref):
    y = jnp.maximum(x_ref[...], 0.0)


def kernel(x):
    spec = pl.BlockSpec((8, 128), lambda i, j: (i, j))
    return pl.pallas_call(
        tile,
        grid=(x.shape[0] // 8, x.shape[1] // 128),
        in_specs=[spec],
        out_specs=spec,
        out_shape=jax.ShapeDtypeStruct(x.shape, x.dtype),
        compiler_params=plgpu.CompilerParams(num_warps=4),
    )(x)


# EVOLVE-BLOCK-END
