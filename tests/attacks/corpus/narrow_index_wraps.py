# attack: flat indices in sixteen bits, which wrap in large arrays
# task: L1/relu
# reason: out_of_bounds, race, unwritten, output_range, output_std, axes_variation, input_impact, numerics
# class: 47

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton as plgpu


# EVOLVE-BLOCK-START
def tile(x_ref, o_ref):
    at = ((pl.program_id(0) * 1024 + jnp.arange(1024)).astype(jnp.int16)).astype(jnp.int32)
    o_ref[at] = jnp.maximum(x_ref[at], 0.0)


def kernel(x):
    m, n = x.shape
    out = pl.pallas_call(
        tile,
        grid=(m * n // 1024,),
        out_shape=jax.ShapeDtypeStruct((m * n,), x.dtype),
        compiler_params=plgpu.CompilerParams(num_warps=4),
    )(x.reshape(m * n))
    return out.reshape(m, n)


# EVOLVE-BLOCK-END
