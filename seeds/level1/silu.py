"""SiLU.

    out[i, j] = x[i, j] / (1 + exp(-x[i, j]))

Inputs:
    x: (M, N) float32
Returns:
    (M, N) float32, f32

A two-dimensional grid of tiles; a tile that hangs over an edge is masked.

Task: L1/silu. Origin: written for pallas_evo from the formula; the task is PallasBench's.
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


def silu_tile(x_ref, o_ref):
    m, n = x_ref.shape
    rows = (pl.program_id(0) * BLOCK_M + jnp.arange(BLOCK_M))[:, None]
    cols = (pl.program_id(1) * BLOCK_N + jnp.arange(BLOCK_N))[None, :]
    inside = (rows < m) & (cols < n)
    x = plgpu.load(x_ref.at[rows, cols], mask=inside, other=0.0)
    plgpu.store(o_ref.at[rows, cols], x / (1.0 + jnp.exp(-x)), mask=inside)


def kernel(x):
    m, n = x.shape
    return pl.pallas_call(
        silu_tile,
        grid=(pl.cdiv(m, BLOCK_M), pl.cdiv(n, BLOCK_N)),
        out_shape=jax.ShapeDtypeStruct((m, n), x.dtype),
        compiler_params=plgpu.CompilerParams(num_warps=NUM_WARPS, num_stages=NUM_STAGES),
    )(x)


# EVOLVE-BLOCK-END
