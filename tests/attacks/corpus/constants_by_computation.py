# attack: builds a large table from an iota, outside the kernel
# task: L1/relu
# reason: constant_size
# class: 10

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton as plgpu


# EVOLVE-BLOCK-START
def tile(x_ref, t_ref, o_ref):
    o_ref[...] = jnp.maximum(x_ref[...], 0.0) + 0.0 * t_ref[...]


def kernel(x):
    m, n = x.shape
    spec = pl.BlockSpec((8, 128), lambda i, j: (i, j))
    table = jnp.sin(lax.broadcasted_iota(jnp.float32, (m, n), 0))
    return pl.pallas_call(
        tile,
        grid=(m // 8, n // 128),
        in_specs=[spec, spec],
        out_specs=spec,
        out_shape=jax.ShapeDtypeStruct((m, n), x.dtype),
        compiler_params=plgpu.CompilerParams(num_warps=4),
    )(x, table)


# EVOLVE-BLOCK-END
