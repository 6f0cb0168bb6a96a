# attack: a constant of 64 MB
# task: L1/relu
# reason: artefact_size, timeout, memory
# class: 60


# EVOLVE-BLOCK-START
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton as plgpu

TABLE = np.arange(16 << 20, dtype=np.float32)


def tile(x_ref, t_ref, o_ref):
    o_ref[...] = jnp.maximum(x_ref[...], 0.0) + 0.0 * t_ref[0]


def kernel(x):
    spec = pl.BlockSpec((8, 128), lambda i, j: (i, j))
    return pl.pallas_call(
        tile,
        grid=(x.shape[0] // 8, x.shape[1] // 128),
        in_specs=[spec, pl.BlockSpec((1024,), lambda i, j: (0,))],
        out_specs=spec,
        out_shape=jax.ShapeDtypeStruct(x.shape, x.dtype),
        compiler_params=plgpu.CompilerParams(num_warps=4),
    )(x, jnp.asarray(TABLE))


# EVOLVE-BLOCK-END
