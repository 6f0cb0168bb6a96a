# attack: keeps its intermediate result in bfloat16, converted outside the kernels
# task: L1/exp
# reason: numerics, output_range
# class: 43

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton as plgpu


# EVOLVE-BLOCK-START
def tile(x_ref, o_ref):
    o_ref[...] = jnp.exp(x_ref[...].astype(jnp.float32))


def kernel(x):
    spec = pl.BlockSpec((8, 128), lambda i, j: (i, j))
    return pl.pallas_call(
        tile,
        grid=(x.shape[0] // 8, x.shape[1] // 128),
        in_specs=[spec],
        out_specs=spec,
        out_shape=jax.ShapeDtypeStruct(x.shape, x.dtype),
        compiler_params=plgpu.CompilerParams(num_warps=4),
    )(x.astype(jnp.bfloat16))


# EVOLVE-BLOCK-END
