"""Outer product of two vectors.

    out[i, j] = x[i] y[j]

Inputs:
    x: (M,) float32
    y: (N,) float32
Returns:
    (M, N) float32, exact

A two-dimensional grid of output tiles; each program reads one piece of either vector and masks the edges.

Task: L1/outer_product. Origin: written for pallas_evo from the formula; the task is PallasBench's.
SPDX-License-Identifier: Apache-2.0
"""

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton as plgpu

# EVOLVE-BLOCK-START
BLOCK_M = 16
BLOCK_N = 128
NUM_WARPS = 4
NUM_STAGES = 1


def outer_product_tile(x_ref, y_ref, o_ref):
    m, n = o_ref.shape
    rows = pl.program_id(0) * BLOCK_M + jnp.arange(BLOCK_M)
    cols = pl.program_id(1) * BLOCK_N + jnp.arange(BLOCK_N)
    x = plgpu.load(x_ref.at[rows], mask=rows < m, other=0.0)
    y = plgpu.load(y_ref.at[cols], mask=cols < n, other=0.0)
    inside = (rows[:, None] < m) & (cols[None, :] < n)
    plgpu.store(o_ref.at[rows[:, None], cols[None, :]], x[:, None] * y[None, :], mask=inside)


def kernel(x, y):
    m, n = x.shape[0], y.shape[0]
    return pl.pallas_call(
        outer_product_tile,
        grid=(pl.cdiv(m, BLOCK_M), pl.cdiv(n, BLOCK_N)),
        out_shape=jax.ShapeDtypeStruct((m, n), x.dtype),
        compiler_params=plgpu.CompilerParams(num_warps=NUM_WARPS, num_stages=NUM_STAGES),
    )(x, y)


# EVOLVE-BLOCK-END
