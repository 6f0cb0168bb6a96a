"""Logarithm of the softmax of each row.

    out[i, j] = x[i, j] - max_i - log(sum_k exp(x[i, k] - max_i))

Inputs:
    x: (M, N) float32
Returns:
    (M, N) float32, f32

One program per row holds it whole, in a block of the next power of two; the masked lanes read as -inf, so they
add 0 to the sum.

Task: L1/log_softmax. Origin: written for pallas_evo from the formula; the task is PallasBench's.
SPDX-License-Identifier: Apache-2.0
"""

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton as plgpu

# EVOLVE-BLOCK-START
NUM_WARPS = 8
NUM_STAGES = 1


def log_softmax_row(x_ref, o_ref):
    n = x_ref.shape[1]
    row = pl.program_id(0)
    cols = jnp.arange(pl.next_power_of_2(n))
    inside = cols < n
    x = plgpu.load(x_ref.at[row, cols], mask=inside, other=-jnp.inf)
    shifted = x - jnp.max(x)
    log_sum = jnp.log(jnp.sum(jnp.exp(shifted)))
    plgpu.store(o_ref.at[row, cols], shifted - log_sum, mask=inside)


def kernel(x):
    m, n = x.shape
    return pl.pallas_call(
        log_softmax_row,
        grid=(m,),
        out_shape=jax.ShapeDtypeStruct((m, n), x.dtype),
        compiler_params=plgpu.CompilerParams(num_warps=NUM_WARPS, num_stages=NUM_STAGES),
    )(x)


# EVOLVE-BLOCK-END
