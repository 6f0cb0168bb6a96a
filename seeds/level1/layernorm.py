"""Layer normalisation, no affine part.

    out[i, j] = (x[i, j] - mean_i) / sqrt(var_i + 1e-5), var the population variance

Inputs:
    x: (M, N) float32
Returns:
    (M, N) float32, f32

One program per row holds it whole, in a block of the next power of two: mean first, then the variance of the
centred values, in which the masked lanes are set back to 0.

Task: L1/layernorm. Origin: written for pallas_evo from the formula; the task is PallasBench's.
SPDX-License-Identifier: Apache-2.0
"""

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton as plgpu

# EVOLVE-BLOCK-START
NUM_WARPS = 8
NUM_STAGES = 1
EPSILON = 1e-5


def layernorm_row(x_ref, o_ref):
    n = x_ref.shape[1]
    row = pl.program_id(0)
    cols = jnp.arange(pl.next_power_of_2(n))
    inside = cols < n
    x = plgpu.load(x_ref.at[row, cols], mask=inside, other=0.0)
    mean = jnp.sum(x) / n
    centred = jnp.where(inside, x - mean, 0.0)
    variance = jnp.sum(centred * centred) / n
    plgpu.store(o_ref.at[row, cols], centred * lax.rsqrt(variance + EPSILON), mask=inside)


def kernel(x):
    m, n = x.shape
    return pl.pallas_call(
        layernorm_row,
        grid=(m,),
        out_shape=jax.ShapeDtypeStruct((m, n), x.dtype),
        compiler_params=plgpu.CompilerParams(num_warps=NUM_WARPS, num_stages=NUM_STAGES),
    )(x)


# EVOLVE-BLOCK-END
