# attack: calls numpy on the host, through another name of jax
# task: L1/relu
# reason: trace_error, lowering_error, forbidden_custom_call
# class: 63

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton as plgpu

# EVOLVE-BLOCK-START
j = jax


def tile(x_ref, o_ref):
    o_ref[...] = jnp.maximum(x_ref[...], 0.0)


def kernel(x):
    m, n = x.shape
    spec = pl.BlockSpec((8, 128), lambda i, j: (i, j))
    y = j.pure_callback(lambda v: v, j.ShapeDtypeStruct((m, n), x.dtype), x)
    out = pl.pallas_call(
        tile,
        grid=(m // 8, n // 128),
        in_specs=[spec],
        out_specs=spec,
        out_shape=jax.ShapeDtypeStruct((m, n), x.dtype),
        compiler_params=plgpu.CompilerParams(num_warps=4),
    )(y)
    return out


# EVOLVE-BLOCK-END
