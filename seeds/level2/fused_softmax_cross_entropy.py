"""Softmax cross-entropy with soft labels, one pass over the row.

    out[i] = -sum_j labels[i, j] log_softmax(logits[i, :])[j]

Inputs:
    logits: (M, N) float32
    labels: (M, N) float32, non-negative
Returns:
    (M,) float32, f32

One program per row holds logits and labels, padded to a power of two, so each is read once. The maximum is taken out
before the exponential, and labels need not sum to one.

Task: L2/fused_softmax_cross_entropy. Origin: written for pallas_evo from the formula; the task is PallasBench's.
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


def cross_entropy_row(logits_ref, labels_ref, o_ref):
    n = logits_ref.shape[1]
    row = pl.program_id(0)
    cols = jnp.arange(pl.next_power_of_2(n))
    inside = cols < n
    logits = plgpu.load(logits_ref.at[row, cols], mask=inside, other=-jnp.inf)
    labels = plgpu.load(labels_ref.at[row, cols], mask=inside, other=0.0)
    shifted = logits - jnp.max(logits)
    log_probability = shifted - jnp.log(jnp.sum(jnp.exp(shifted)))
    plgpu.store(o_ref.at[row], -jnp.sum(jnp.where(inside, labels * log_probability, 0.0)))


def kernel(logits, labels):
    m, n = logits.shape
    num_warps = min(MAX_WARPS, pl.next_power_of_2(pl.cdiv(n, ELEMENTS_PER_WARP)))
    return pl.pallas_call(
        cross_entropy_row,
        grid=(m,),
        out_shape=jax.ShapeDtypeStruct((m,), logits.dtype),
        compiler_params=plgpu.CompilerParams(num_warps=num_warps, num_stages=NUM_STAGES),
    )(logits, labels)


# EVOLVE-BLOCK-END
