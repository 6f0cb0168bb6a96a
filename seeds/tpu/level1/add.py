"""Sum of two matrices.

    out[i, j] = x[i, j] + y[i, j]

Inputs:
    x: (M, N) float32
    y: (M, N) float32
Returns:
    (M, N) float32, exact

A grid over blocks of 1024 whole rows.

Task: L1/add. The TPU-sized original of that seed.
Origin: written for pallas_evo from the formula; the task is PallasBench's.
SPDX-License-Identifier: Apache-2.0
"""

import jax
from jax.experimental import pallas as pl

# EVOLVE-BLOCK-START
BLOCK_M = 1024


def add_rows(x_ref, y_ref, o_ref):
    o_ref[...] = x_ref[...] + y_ref[...]


def kernel(x, y):
    m, n = x.shape
    block_m = min(BLOCK_M, m)
    rows = pl.BlockSpec((block_m, n), lambda i: (i, 0))
    return pl.pallas_call(
        add_rows,
        grid=(pl.cdiv(m, block_m),),
        in_specs=[rows, rows],
        out_specs=rows,
        out_shape=jax.ShapeDtypeStruct((m, n), x.dtype),
    )(x, y)


# EVOLVE-BLOCK-END
