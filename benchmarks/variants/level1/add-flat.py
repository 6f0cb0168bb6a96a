"""Sum of two matrices.

    out[i, j] = x[i, j] + y[i, j]

Inputs:
    x: (M, N) float32
    y: (M, N) float32
Returns:
    (M, N) float32, exact

The arrays are taken as one long row, which reshaping makes of them for nothing; a program reads and writes one
contiguous piece and tells the cache that it won't come back. The last piece is masked.

Task: L1/add. Origin: a variant of the seed, written by hand; the task is PallasBench's.
SPDX-License-Identifier: Apache-2.0
"""

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton as plgpu

# EVOLVE-BLOCK-START
BLOCK_SIZE = 2048
NUM_WARPS = 4
NUM_STAGES = 1


def add_piece(x_ref, y_ref, o_ref):
    size = o_ref.shape[0]
    places = pl.program_id(0) * BLOCK_SIZE + jnp.arange(BLOCK_SIZE)
    inside = places < size
    x = plgpu.load(x_ref.at[places], mask=inside, other=0.0, eviction_policy="evict_first")
    y = plgpu.load(y_ref.at[places], mask=inside, other=0.0, eviction_policy="evict_first")
    plgpu.store(o_ref.at[places], x + y, mask=inside, eviction_policy="evict_first")


def kernel(x, y):
    out = pl.pallas_call(
        add_piece,
        grid=(pl.cdiv(x.size, BLOCK_SIZE),),
        out_shape=jax.ShapeDtypeStruct((x.size,), x.dtype),
        compiler_params=plgpu.CompilerParams(num_warps=NUM_WARPS, num_stages=NUM_STAGES),
    )(x.reshape(-1), y.reshape(-1))
    return out.reshape(x.shape)


# EVOLVE-BLOCK-END
