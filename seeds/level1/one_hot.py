"""One-hot rows over 1024 classes.

    out[t, c] = 1 where c == indices[t], else 0

Inputs:
    indices: (N,) int32, in [0, 1024)
Returns:
    (N, 1024) float32, exact

A two-dimensional grid of output tiles, each comparing its column numbers with its indices; tokens past the end are
masked.

Task: L1/one_hot. Origin: written for pallas_evo from the formula; the task is PallasBench's.
SPDX-License-Identifier: Apache-2.0
"""

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton as plgpu

# EVOLVE-BLOCK-START
CLASSES = 1024
BLOCK_N = 8
BLOCK_C = 256
NUM_WARPS = 4
NUM_STAGES = 1


def one_hot_tile(indices_ref, o_ref):
    n, classes = o_ref.shape
    tokens = pl.program_id(0) * BLOCK_N + jnp.arange(BLOCK_N)
    cols = (pl.program_id(1) * BLOCK_C + jnp.arange(BLOCK_C))[None, :]
    indices = plgpu.load(indices_ref.at[tokens], mask=tokens < n, other=0)
    hot = jnp.where(cols == indices[:, None], 1.0, 0.0).astype(jnp.float32)
    plgpu.store(o_ref.at[tokens[:, None], cols], hot, mask=(tokens[:, None] < n) & (cols < classes))


def kernel(indices):
    n = indices.shape[0]
    return pl.pallas_call(
        one_hot_tile,
        grid=(pl.cdiv(n, BLOCK_N), pl.cdiv(CLASSES, BLOCK_C)),
        out_shape=jax.ShapeDtypeStruct((n, CLASSES), jnp.float32),
        compiler_params=plgpu.CompilerParams(num_warps=NUM_WARPS, num_stages=NUM_STAGES),
    )(indices)


# EVOLVE-BLOCK-END
