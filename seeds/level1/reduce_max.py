"""Row maxima.

    out[i] = max_j x[i, j]

Inputs:
    x: (M, N) float32
Returns:
    (M,) float32, exact

One program per block of rows walks the columns in blocks, keeping one partial result
per lane, and reduces the lanes at the end; masked elements read as -inf.

Task: L1/reduce_max. Origin: written for pallas_evo from the formula; the task is PallasBench's.
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


def reduce_max_rows(x_ref, o_ref):
    m, n = x_ref.shape
    rows = pl.program_id(0) * BLOCK_M + jnp.arange(BLOCK_M)

    def step(block, partial):
        cols = block * BLOCK_N + jnp.arange(BLOCK_N)
        inside = (rows[:, None] < m) & (cols[None, :] < n)
        x = plgpu.load(x_ref.at[rows[:, None], cols[None, :]], mask=inside, other=-jnp.inf)
        return jnp.maximum(partial, x)

    partial = lax.fori_loop(0, pl.cdiv(n, BLOCK_N), step, jnp.full((BLOCK_M, BLOCK_N), -jnp.inf, jnp.float32))
    plgpu.store(o_ref.at[rows], jnp.max(partial, axis=1), mask=rows < m)


def kernel(x):
    m = x.shape[0]
    return pl.pallas_call(
        reduce_max_rows,
        grid=(pl.cdiv(m, BLOCK_M),),
        out_shape=jax.ShapeDtypeStruct((m,), x.dtype),
        compiler_params=plgpu.CompilerParams(num_warps=NUM_WARPS, num_stages=NUM_STAGES),
    )(x)


# EVOLVE-BLOCK-END
