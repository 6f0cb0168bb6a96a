"""Euclidean distance between all pairs of rows.

    out[i, j] = sqrt(sum_d (x[i, d] - x[j, d])^2 + 1e-8)

Inputs:
    x: (N, D) float32
Returns:
    (N, N) float32, f32

One program per output tile walks D and adds squared differences. The shorter way, |x|^2 + |y|^2 - 2 x.y, cancels where
two rows are close, on the diagonal above all.

Task: L2/pairwise_distance. Origin: written for pallas_evo from the formula; the task is PallasBench's.
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
NUM_WARPS = 4
NUM_STAGES = 2
EPSILON = 1e-8


def pairwise_distance_tile(x_ref, o_ref):
    n, d = x_ref.shape
    rows = pl.program_id(0) * BLOCK_I + jnp.arange(BLOCK_I)
    cols = pl.program_id(1) * BLOCK_J + jnp.arange(BLOCK_J)

    def step(feature, total):
        a = plgpu.load(x_ref.at[rows, feature], mask=rows < n, other=0.0)
        b = plgpu.load(x_ref.at[cols, feature], mask=cols < n, other=0.0)
        difference = a[:, None] - b[None, :]
        return total + difference * difference

    total = lax.fori_loop(0, d, step, jnp.zeros((BLOCK_I, BLOCK_J), jnp.float32))
    inside = (rows < n)[:, None] & (cols < n)[None, :]
    plgpu.store(o_ref.at[rows[:, None], cols[None, :]], jnp.sqrt(total + EPSILON), mask=inside)


def kernel(x):
    n = x.shape[0]
    return pl.pallas_call(
        pairwise_distance_tile,
        grid=(pl.cdiv(n, BLOCK_I), pl.cdiv(n, BLOCK_J)),
        out_shape=jax.ShapeDtypeStruct((n, n), x.dtype),
        compiler_params=plgpu.CompilerParams(num_warps=NUM_WARPS, num_stages=NUM_STAGES),
    )(x)


# EVOLVE-BLOCK-END
