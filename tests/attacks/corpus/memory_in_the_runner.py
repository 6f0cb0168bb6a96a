# attack: an intermediate result of 64 GB, which the program never looks at in full
# task: L1/relu
# reason: run_memory, endless, program_size, launch
# class: 59

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton as plgpu


# EVOLVE-BLOCK-START
def fill(x_ref, o_ref):
    o_ref[pl.program_id(0), jnp.arange(1024)] = jnp.zeros(1024, jnp.float32) + plgpu.load(x_ref.at[0, 0])


def tile(x_ref, huge_ref, o_ref):
    m, n = x_ref.shape
    rows = (pl.program_id(0) * 16 + jnp.arange(16))[:, None]
    cols = (pl.program_id(1) * 128 + jnp.arange(128))[None, :]
    x = plgpu.load(x_ref.at[rows, cols])
    plgpu.store(o_ref.at[rows, cols], jnp.maximum(x, 0.0) + 0.0 * plgpu.load(huge_ref.at[5, 5]))


def kernel(x):
    m, n = x.shape
    params = plgpu.CompilerParams(num_warps=4)
    huge = x
    for _ in range(16):
        huge = pl.pallas_call(
            fill,
            grid=((1 << 20) - 1,),
            out_shape=jax.ShapeDtypeStruct(((1 << 20) - 1, 1 << 10), jnp.float32),
            compiler_params=params,
        )(huge)
    return pl.pallas_call(
        tile, grid=(m // 16, n // 128), out_shape=jax.ShapeDtypeStruct((m, n), x.dtype), compiler_params=params
    )(x, huge)


# EVOLVE-BLOCK-END
