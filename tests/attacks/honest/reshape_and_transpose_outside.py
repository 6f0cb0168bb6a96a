# honest: flattens outside, works in one dimension, goes back
# task: L1/relu

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton as plgpu


# EVOLVE-BLOCK-START
def tile(x_ref, o_ref):
    o_ref[...] = jnp.maximum(x_ref[...], 0.0)


def kernel(x):
    m, n = x.shape
    spec = pl.BlockSpec((1024,), lambda i: (i,))
    out = pl.pallas_call(
        tile,
        grid=(m * n // 1024,),
        in_specs=[spec],
        out_specs=spec,
        out_shape=jax.ShapeDtypeStruct((m * n,), x.dtype),
        compiler_params=plgpu.CompilerParams(num_warps=4),
    )(x.T.reshape(m * n))
    return out.reshape(n, m).T


# EVOLVE-BLOCK-END
