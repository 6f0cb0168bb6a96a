"""Row means.

    out[i] = sum_j x[i, j] / N

Inputs:
    x: (M, N) float32
Returns:
    (M,) float32, f32

A program reads BLOCK_M whole rows at once, in a block of the next power of two, so that every load is under way before
the first is needed; masked elements read as 0.0.

Task: L1/reduce_mean. Origin: a variant of the seed, written by hand; the task is PallasBench's.
SPDX-License-Identifier: Apache-2.0
"""

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton as plgpu

# EVOLVE-BLOCK-START
BLOCK_M = 1
NUM_WARPS = 4
NUM_STAGES = 1


def reduce_mean_rows(x_ref, o_ref):
    m, n = x_ref.shape
    rows = pl.program_id(0) * BLOCK_M + jnp.arange(BLOCK_M)
    cols = jnp.arange(pl.next_power_of_2(n))
    inside = (rows[:, None] < m) & (cols[None, :] < n)
    x = plgpu.load(x_ref.at[rows[:, None], cols[None, :]], mask=inside, other=0.0, eviction_policy="evict_first")
    plgpu.store(o_ref.at[rows], jnp.sum(x, axis=1) / n, mask=rows < m)


def kernel(x):
    m = x.shape[0]
    return pl.pallas_call(
        reduce_mean_rows,
        grid=(pl.cdiv(m, BLOCK_M),),
        out_shape=jax.ShapeDtypeStruct((m,), x.dtype),
        compiler_params=plgpu.CompilerParams(num_warps=NUM_WARPS, num_stages=NUM_STAGES),
    )(x)


# EVOLVE-BLOCK-END
