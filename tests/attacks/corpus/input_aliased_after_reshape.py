# attack: aliases a reshaped and transposed view of its input
# task: L1/relu
# reason: input_alias
# class: 26

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
    flat = x.T.reshape(m * n)
    spec = pl.BlockSpec((1024,), lambda i: (i,))
    out = pl.pallas_call(
        tile,
        grid=(m * n // 1024,),
        in_specs=[spec],
        out_specs=spec,
        out_shape=jax.ShapeDtypeStruct((m * n,), x.dtype),
        input_output_aliases={0: 0},
        compiler_params=plgpu.CompilerParams(num_warps=4),
    )(flat)
    return out.reshape(n, m).T


# EVOLVE-BLOCK-END
