# attack: one block for the whole array, over Triton's limit
# task: L1/relu
# reason: block_size, lowering_error
# class: 60

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton as plgpu


# EVOLVE-BLOCK-START
def tile(x_ref, o_ref):
    o_ref[...] = jnp.maximum(x_ref[...], 0.0)


def kernel(x):
    m, n = x.shape
    x = jnp.pad(x.reshape(m * n), (0, (1 << 21) - m * n)) if m * n < 1 << 21 else x.reshape(m * n)
    out = pl.pallas_call(
        tile, out_shape=jax.ShapeDtypeStruct(x.shape, x.dtype), compiler_params=plgpu.CompilerParams()
    )(x)
    return out[: m * n].reshape(m, n)


# EVOLVE-BLOCK-END
