"""Mean squared error of each row.

    out[i] = mean_j (pred[i, j] - target[i, j])^2

Inputs:
    pred: (M, N) float32
    target: (M, N) float32
Returns:
    (M,) float32, f32

A grid over blocks of 1024 whole rows; each block writes one column.

Task: L1/mse_loss. The TPU-sized original of that seed.
Origin: written for pallas_evo from the formula; the task is PallasBench's.
SPDX-License-Identifier: Apache-2.0
"""

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl

# EVOLVE-BLOCK-START
BLOCK_M = 1024


def mse_loss_rows(pred_ref, target_ref, o_ref):
    error = pred_ref[...] - target_ref[...]
    o_ref[...] = jnp.mean(error * error, axis=1, keepdims=True)


def kernel(pred, target):
    m, n = pred.shape
    block_m = min(BLOCK_M, m)
    rows = pl.BlockSpec((block_m, n), lambda i: (i, 0))
    out = pl.pallas_call(
        mse_loss_rows,
        grid=(pl.cdiv(m, block_m),),
        in_specs=[rows, rows],
        out_specs=pl.BlockSpec((block_m, 1), lambda i: (i, 0)),
        out_shape=jax.ShapeDtypeStruct((m, 1), pred.dtype),
    )(pred, target)
    return out.reshape(m)


# EVOLVE-BLOCK-END
