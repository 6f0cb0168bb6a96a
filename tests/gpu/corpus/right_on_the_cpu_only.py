# attack: is right where a product is rounded before it is added, and wrong where the GPU fuses the two
# task: L1/multiply
# reason: output_range, numerics, non_finite
# class: 43

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton as plgpu

# EVOLVE-BLOCK-START
BLOCK_M = 16
BLOCK_N = 128


def tile(x_ref, y_ref, o_ref):
    m, n = x_ref.shape
    rows = (pl.program_id(0) * BLOCK_M + jnp.arange(BLOCK_M))[:, None]
    cols = (pl.program_id(1) * BLOCK_N + jnp.arange(BLOCK_N))[None, :]
    inside = (rows < m) & (cols < n)
    x = plgpu.load(x_ref.at[rows, cols], mask=inside, other=0.0)
    y = plgpu.load(y_ref.at[rows, cols], mask=inside, other=0.0)
    rounded = jnp.where(x < 3e38, x * y, 0.0)
    same = (x * y + x) == (rounded + x)
    plgpu.store(o_ref.at[rows, cols], jnp.where(same, x * y, 0.0), mask=inside)


def kernel(x, y):
    m, n = x.shape
    return pl.pallas_call(
        tile,
        grid=(pl.cdiv(m, BLOCK_M), pl.cdiv(n, BLOCK_N)),
        out_shape=jax.ShapeDtypeStruct((m, n), x.dtype),
        compiler_params=plgpu.CompilerParams(num_warps=4, num_stages=1),
    )(x, y)


# EVOLVE-BLOCK-END
