"""Euclidean distance between all pairs of rows.

    out[i, j] = sqrt(sum_d (x[i, d] - x[j, d])^2 + 1e-8)

Inputs:
    x: (N, D) float32
Returns:
    (N, N) float32, f32

Blocks of 1024 whole rows against all rows (given as columns), one feature at a time; differences first, as the
expanded square loses the diagonal to cancellation.

Task: L2/pairwise_distance. The TPU-sized original of that seed.
Origin: written for pallas_evo from the formula; the task is PallasBench's.
SPDX-License-Identifier: Apache-2.0
"""

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl

# EVOLVE-BLOCK-START
BLOCK_M = 1024


def distance_rows(x_ref, columns_ref, o_ref):
    total = jnp.zeros(o_ref.shape, jnp.float32)
    for d in range(x_ref.shape[1]):
        difference = x_ref[:, d : d + 1] - columns_ref[d : d + 1, :]
        total += difference * difference
    o_ref[...] = jnp.sqrt(total + 1e-8)


def kernel(x):
    n, d = x.shape
    block_m = min(BLOCK_M, n)
    return pl.pallas_call(
        distance_rows,
        grid=(pl.cdiv(n, block_m),),
        in_specs=[pl.BlockSpec((block_m, d), lambda i: (i, 0)), pl.BlockSpec((d, n), lambda i: (0, 0))],
        out_specs=pl.BlockSpec((block_m, n), lambda i: (i, 0)),
        out_shape=jax.ShapeDtypeStruct((n, n), x.dtype),
    )(x, x.T)


# EVOLVE-BLOCK-END
