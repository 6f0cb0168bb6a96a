"""RMS normalisation plus a residual.

    out = x / sqrt(mean(x^2, -1) + 1e-5) + residual

Inputs:
    x: (M, N) float32
    residual: (M, N) float32
Returns:
    (M, N) float32, f32

One program per row holds the whole row, padded with zeros to a power of two; longer rows get more warps.

Task: L2/rmsnorm_residual. Origin: written for pallas_evo from the formula; the task is PallasBench's.
SPDX-License-Identifier: Apache-2.0
"""

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton as plgpu

# EVOLVE-BLOCK-START
ELEMENTS_PER_WARP = 256
MAX_WARPS = 16
NUM_STAGES = 1
EPSILON = 1e-5


def rmsnorm_residual_row(x_ref, residual_ref, o_ref):
    n = x_ref.shape[1]
    row = pl.program_id(0)
    cols = jnp.arange(pl.next_power_of_2(n))
    inside = cols < n
    x = plgpu.load(x_ref.at[row, cols], mask=inside, other=0.0)
    residual = plgpu.load(residual_ref.at[row, cols], mask=inside, other=0.0)
    scale = 1.0 / jnp.sqrt(jnp.sum(x * x) * (1.0 / n) + EPSILON)
    plgpu.store(o_ref.at[row, cols], x * scale + residual, mask=inside)


def kernel(x, residual):
    m, n = x.shape
    num_warps = min(MAX_WARPS, pl.next_power_of_2(pl.cdiv(n, ELEMENTS_PER_WARP)))
    return pl.pallas_call(
        rmsnorm_residual_row,
        grid=(m,),
        out_shape=jax.ShapeDtypeStruct((m, n), x.dtype),
        compiler_params=plgpu.CompilerParams(num_warps=num_warps, num_stages=NUM_STAGES),
    )(x, residual)


# EVOLVE-BLOCK-END
