"""Outer product of two vectors.

    out[i, j] = x[i] y[j]

Inputs:
    x: (M,) float32
    y: (N,) float32
Returns:
    (M, N) float32, exact

A column of 1024 elements times the whole row y, as TPU vectors want two dimensions.

Task: L1/outer_product. The TPU-sized original of that seed.
Origin: written for pallas_evo from the formula; the task is PallasBench's.
SPDX-License-Identifier: Apache-2.0
"""

import jax
from jax.experimental import pallas as pl

# EVOLVE-BLOCK-START
BLOCK_M = 1024


def outer_rows(x_ref, y_ref, o_ref):
    o_ref[...] = x_ref[...] * y_ref[...]


def kernel(x, y):
    m, n = x.shape[0], y.shape[0]
    block_m = min(BLOCK_M, m)
    return pl.pallas_call(
        outer_rows,
        grid=(pl.cdiv(m, block_m),),
        in_specs=[pl.BlockSpec((block_m, 1), lambda i: (i, 0)), pl.BlockSpec((1, n), lambda i: (0, 0))],
        out_specs=pl.BlockSpec((block_m, n), lambda i: (i, 0)),
        out_shape=jax.ShapeDtypeStruct((m, n), x.dtype),
    )(x.reshape(m, 1), y.reshape(1, n))


# EVOLVE-BLOCK-END
