"""Scores of a position weight matrix along a sequence.

    out[p] = sum_{t < T, c < 4} sequence_onehot[p + t, c] pwm[c, t],   0 <= p <= L - T

Inputs:
    sequence_onehot: (L, 4) float32, one-hot rows
    pwm: (4, T) float32
Returns:
    (L - T + 1,) float32, f32

One program holds the whole sequence and slides it under the T columns of the matrix, given as rows.

Task: L2/pwm_scan. The TPU-sized original of that seed.
Origin: written for pallas_evo from the formula; the task is PallasBench's.
SPDX-License-Identifier: Apache-2.0
"""

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl

# EVOLVE-BLOCK-START


def pwm_scan_whole(sequence_ref, columns_ref, o_ref):
    positions = o_ref.shape[0]
    total = jnp.zeros((positions, 4), jnp.float32)
    for t in range(columns_ref.shape[0]):
        total += sequence_ref[t : t + positions, :] * columns_ref[t : t + 1, :]
    o_ref[...] = jnp.sum(total, axis=1, keepdims=True)


def kernel(sequence_onehot, pwm):
    positions = sequence_onehot.shape[0] - pwm.shape[1] + 1
    out = pl.pallas_call(
        pwm_scan_whole,
        out_shape=jax.ShapeDtypeStruct((positions, 1), sequence_onehot.dtype),
    )(sequence_onehot, pwm.T)
    return out.reshape(positions)


# EVOLVE-BLOCK-END
