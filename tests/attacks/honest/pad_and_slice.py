# honest: pads to whole tiles outside and slices back
# task: L1/relu

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton as plgpu


# EVOLVE-BLOCK-START
def tile(x_ref, o_ref):
    o_ref[...] = jnp.maximum(x_ref[...], 0.0)


def kernel(x):
    rows, cols = x.shape
    m, n = pl.cdiv(rows + 1, 8) * 8, pl.cdiv(cols + 1, 128) * 128
    spec = pl.BlockSpec((8, 128), lambda i, j: (i, j))
    padded = jnp.pad(x, ((0, m - rows), (0, n - cols)), constant_values=-1.0)
    out = pl.pallas_call(
        tile,
        grid=(m // 8, n // 128),
        in_specs=[spec],
        out_specs=spec,
        out_shape=jax.ShapeDtypeStruct((m, n), jnp.float32),
        compiler_params=plgpu.CompilerParams(num_warps=4),
    )(padded)
    return out[:rows, :cols]


# EVOLVE-BLOCK-END
