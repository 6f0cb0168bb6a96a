# attack: tiles of which the last hangs over the edge, unmasked
# task: L1/relu
# reason: out_of_bounds
# class: 27

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton as plgpu


# EVOLVE-BLOCK-START
def tile(x_ref, o_ref):
    i = pl.program_id(0)
    at = i * 4096 + jnp.arange(4096)
    o_ref[at] = jnp.maximum(x_ref[at], 0.0)


def kernel(x):
    m, n = x.shape
    size = m * n
    out = pl.pallas_call(
        tile,
        grid=(size // 4096 + 1,),
        out_shape=jax.ShapeDtypeStruct((size,), x.dtype),
        compiler_params=plgpu.CompilerParams(num_warps=4),
    )(x.reshape(size))
    return out.reshape(m, n)


# EVOLVE-BLOCK-END
