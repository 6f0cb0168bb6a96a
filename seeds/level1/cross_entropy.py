"""Cross-entropy of each row against soft labels.

    out[i] = -sum_j labels[i, j] (logits[i, j] - max_i - log(sum_k exp(logits[i, k] - max_i)))

Inputs:
    logits: (M, N) float32
    labels: (M, N) float32, each row sums to 1
Returns:
    (M,) float32, f32

One program per row holds both rows whole, in blocks of the next power of two; masked logits read as -inf and are
replaced by 0 before they meet a label, because 0 times -inf is NaN.

Task: L1/cross_entropy. Origin: written for pallas_evo from the formula; the task is PallasBench's.
SPDX-License-Identifier: Apache-2.0
"""

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton as plgpu

# EVOLVE-BLOCK-START
NUM_WARPS = 8
NUM_STAGES = 1


def cross_entropy_row(logits_ref, labels_ref, o_ref):
    n = logits_ref.shape[1]
    row = pl.program_id(0)
    cols = jnp.arange(pl.next_power_of_2(n))
    inside = cols < n
    logits = plgpu.load(logits_ref.at[row, cols], mask=inside, other=-jnp.inf)
    labels = plgpu.load(labels_ref.at[row, cols], mask=inside, other=0.0)
    shifted = logits - jnp.max(logits)
    log_sum = jnp.log(jnp.sum(jnp.exp(shifted)))
    log_probabilities = jnp.where(inside, shifted - log_sum, 0.0)
    plgpu.store(o_ref.at[row], -jnp.sum(labels * log_probabilities))


def kernel(logits, labels):
    m = logits.shape[0]
    return pl.pallas_call(
        cross_entropy_row,
        grid=(m,),
        out_shape=jax.ShapeDtypeStruct((m,), logits.dtype),
        compiler_params=plgpu.CompilerParams(num_warps=NUM_WARPS, num_stages=NUM_STAGES),
    )(logits, labels)


# EVOLVE-BLOCK-END
