# honest: index maps and a helper are lambdas
# task: L1/relu

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton as plgpu


# EVOLVE-BLOCK-START
def tile(x_ref, o_ref):
    o_ref[...] = SETTINGS["positive"](x_ref[...])


SETTINGS = {"positive": lambda v: jnp.where(v > 0, v, 0.0)}


def kernel(x):
    m, n = x.shape
    spec = pl.BlockSpec((8, 128), lambda i, j: (i, j))
    return pl.pallas_call(
        tile,
        grid=(m // 8, n // 128),
        in_specs=[spec],
        out_specs=spec,
        out_shape=jax.ShapeDtypeStruct((m, n), jnp.float32),
        compiler_params=plgpu.CompilerParams(num_warps=4),
    )(x)


# EVOLVE-BLOCK-END
