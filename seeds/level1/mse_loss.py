"""Mean squared error of each row.

    out[i] = sum_j (pred[i, j] - target[i, j])^2 / N

Inputs:
    pred: (M, N) float32
    target: (M, N) float32
Returns:
    (M,) float32, f32

One program per block of rows walks the columns in blocks, adding up one partial result
per lane, and reduces the lanes at the end; masked elements read as 0.

Task: L1/mse_loss. Origin: written for pallas_evo from the formula; the task is PallasBench's.
SPDX-License-Identifier: Apache-2.0
"""

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton as plgpu

# EVOLVE-BLOCK-START
BLOCK_M = 4
BLOCK_N = 512
NUM_WARPS = 4
NUM_STAGES = 1


def mse_loss_rows(pred_ref, target_ref, o_ref):
    m, n = pred_ref.shape
    rows = pl.program_id(0) * BLOCK_M + jnp.arange(BLOCK_M)

    def step(block, partial):
        cols = block * BLOCK_N + jnp.arange(BLOCK_N)
        inside = (rows[:, None] < m) & (cols[None, :] < n)
        pred = plgpu.load(pred_ref.at[rows[:, None], cols[None, :]], mask=inside, other=0.0)
        target = plgpu.load(target_ref.at[rows[:, None], cols[None, :]], mask=inside, other=0.0)
        difference = pred - target
        return partial + difference * difference

    partial = lax.fori_loop(0, pl.cdiv(n, BLOCK_N), step, jnp.zeros((BLOCK_M, BLOCK_N), jnp.float32))
    plgpu.store(o_ref.at[rows], jnp.sum(partial, axis=1) / n, mask=rows < m)


def kernel(pred, target):
    m = pred.shape[0]
    return pl.pallas_call(
        mse_loss_rows,
        grid=(pl.cdiv(m, BLOCK_M),),
        out_shape=jax.ShapeDtypeStruct((m,), pred.dtype),
        compiler_params=plgpu.CompilerParams(num_warps=NUM_WARPS, num_stages=NUM_STAGES),
    )(pred, target)


# EVOLVE-BLOCK-END
