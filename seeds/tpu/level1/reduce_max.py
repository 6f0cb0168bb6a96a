"""Largest element of each row.

    out[i] = max_j x[i, j]

Inputs:
    x: (M, N) float32
Returns:
    (M,) float32, exact

A grid over blocks of 1024 whole rows; each block writes one column.

Task: L1/reduce_max. The TPU-sized original of that seed.
Origin: written for pallas_evo from the formula; the task is PallasBench's.
SPDX-License-Identifier: Apache-2.0
"""

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl

# EVOLVE-BLOCK-START
BLOCK_M = 1024


def reduce_max_rows(x_ref, o_ref):
    o_ref[...] = jnp.max(x_ref[...], axis=1, keepdims=True)


def kernel(x):
    m, n = x.shape
    block_m = min(BLOCK_M, m)
    rows = pl.BlockSpec((block_m, n), lambda i: (i, 0))
    out = pl.pallas_call(
        reduce_max_rows,
        grid=(pl.cdiv(m, block_m),),
        in_specs=[rows],
        out_specs=pl.BlockSpec((block_m, 1), lambda i: (i, 0)),
        out_shape=jax.ShapeDtypeStruct((m, 1), x.dtype),
    )(x)
    return out.reshape(m)


# EVOLVE-BLOCK-END
