"""Triangle multiplicative update of a pair representation.

    p = pair * mask[:, :, None]
    out[i, j, c] = pair[i, j, c] + sum_k p[i, k, c] p[k, j, c]

Inputs:
    pair: (N, N, C) float32
    mask: (N, N) float32, zeros and ones
Returns:
    (N, N, C) float32, dot (TF32 operands allowed)

For each channel this is a matrix product of p with itself. Channels are moved to the front so that a tile is contiguous
along a row; one program per channel and output tile walks k in blocks, masks as it loads and adds the residual.

Task: L3/triangle_update. Origin: written for pallas_evo from the formula; the task is PallasBench's.
SPDX-License-Identifier: Apache-2.0
"""

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton as plgpu

# EVOLVE-BLOCK-START
BLOCK_I = 32
BLOCK_J = 32
BLOCK_K = 16
NUM_WARPS = 4
NUM_STAGES = 2


def triangle_update_tile(pair_ref, mask_ref, o_ref):
    n = mask_ref.shape[0]
    channel = pl.program_id(2)
    rows = (pl.program_id(0) * BLOCK_I + jnp.arange(BLOCK_I))[:, None]
    cols = (pl.program_id(1) * BLOCK_J + jnp.arange(BLOCK_J))[None, :]

    def masked(i, j):
        inside = (i < n) & (j < n)
        pair = plgpu.load(pair_ref.at[channel, i, j], mask=inside, other=0.0)
        return pair * plgpu.load(mask_ref.at[i, j], mask=inside, other=0.0)

    def step(block, total):
        ks = block * BLOCK_K + jnp.arange(BLOCK_K)
        return total + jnp.dot(masked(rows, ks[None, :]), masked(ks[:, None], cols))

    total = lax.fori_loop(0, pl.cdiv(n, BLOCK_K), step, jnp.zeros((BLOCK_I, BLOCK_J), jnp.float32))
    inside = (rows < n) & (cols < n)
    residual = plgpu.load(pair_ref.at[channel, rows, cols], mask=inside, other=0.0)
    plgpu.store(o_ref.at[channel, rows, cols], residual + total, mask=inside)


def kernel(pair, mask):
    n, _, c = pair.shape
    updated = pl.pallas_call(
        triangle_update_tile,
        grid=(pl.cdiv(n, BLOCK_I), pl.cdiv(n, BLOCK_J), c),
        out_shape=jax.ShapeDtypeStruct((c, n, n), pair.dtype),
        compiler_params=plgpu.CompilerParams(num_warps=NUM_WARPS, num_stages=NUM_STAGES),
    )(jnp.transpose(pair, (2, 0, 1)), mask)
    return jnp.transpose(updated, (1, 2, 0))


# EVOLVE-BLOCK-END
