# attack: an index_map that points far past the array
# task: L1/relu
# reason: out_of_bounds
# class: 27

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton as plgpu


# EVOLVE-BLOCK-START
def tile(x_ref, far_ref, o_ref):
    o_ref[...] = jnp.maximum(x_ref[...], 0.0) + 0.0 * far_ref[...]


def kernel(x):
    m, n = x.shape
    near = pl.BlockSpec((8, 128), lambda i, j: (i, j))
    far = pl.BlockSpec((8, 128), lambda i, j: (i + 400_000, j))
    return pl.pallas_call(
        tile,
        grid=(m // 8, n // 128),
        in_specs=[near, far],
        out_specs=near,
        out_shape=jax.ShapeDtypeStruct((m, n), x.dtype),
        compiler_params=plgpu.CompilerParams(num_warps=4),
    )(x, x)


# EVOLVE-BLOCK-END
