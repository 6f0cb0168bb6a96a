"""Embedding lookup.

    out[t, d] = table[indices[t], d]

Inputs:
    table: (V, D) float32
    indices: (N,) int32, in [0, V)
Returns:
    (N, D) float32, exact

A two-dimensional grid of output tiles; each program reads its indices and then gathers those rows of the table.
A masked index reads as 0 and its row is masked too. Pallas uses 64-bit offsets once the table is over 4 GB.

Task: L1/embedding_lookup. Origin: written for pallas_evo from the formula; the task is PallasBench's.
SPDX-License-Identifier: Apache-2.0
"""

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton as plgpu

# EVOLVE-BLOCK-START
BLOCK_N = 4
BLOCK_D = 256
NUM_WARPS = 4
NUM_STAGES = 1


def embedding_lookup_tile(table_ref, indices_ref, o_ref):
    n, d = o_ref.shape
    tokens = pl.program_id(0) * BLOCK_N + jnp.arange(BLOCK_N)
    cols = (pl.program_id(1) * BLOCK_D + jnp.arange(BLOCK_D))[None, :]
    inside = (tokens[:, None] < n) & (cols < d)
    indices = plgpu.load(indices_ref.at[tokens], mask=tokens < n, other=0)
    values = plgpu.load(table_ref.at[indices[:, None], cols], mask=inside, other=0.0)
    plgpu.store(o_ref.at[tokens[:, None], cols], values, mask=inside)


def kernel(table, indices):
    n, d = indices.shape[0], table.shape[1]
    return pl.pallas_call(
        embedding_lookup_tile,
        grid=(pl.cdiv(n, BLOCK_N), pl.cdiv(d, BLOCK_D)),
        out_shape=jax.ShapeDtypeStruct((n, d), table.dtype),
        compiler_params=plgpu.CompilerParams(num_warps=NUM_WARPS, num_stages=NUM_STAGES),
    )(table, indices)


# EVOLVE-BLOCK-END
