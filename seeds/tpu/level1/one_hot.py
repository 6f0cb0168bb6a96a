"""One-hot rows over 1024 classes.

    out[n, c] = 1 where c == indices[n], else 0

Inputs:
    indices: (N,) int32 in [0, 1024)
Returns:
    (N, 1024) float32, exact

A grid over blocks of 1024 whole rows; the indices come as a column.

Task: L1/one_hot. The TPU-sized original of that seed.
Origin: written for pallas_evo from the formula; the task is PallasBench's.
SPDX-License-Identifier: Apache-2.0
"""

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl

# EVOLVE-BLOCK-START
BLOCK_M = 1024
COLUMNS = 1024


def one_hot_rows(indices_ref, o_ref):
    columns = jax.lax.broadcasted_iota(jnp.int32, o_ref.shape, 1)
    o_ref[...] = jnp.where(columns == indices_ref[...], 1.0, 0.0)


def kernel(indices):
    m = indices.shape[0]
    block_m = min(BLOCK_M, m)
    return pl.pallas_call(
        one_hot_rows,
        grid=(pl.cdiv(m, block_m),),
        in_specs=[pl.BlockSpec((block_m, 1), lambda i: (i, 0))],
        out_specs=pl.BlockSpec((block_m, COLUMNS), lambda i: (i, 0)),
        out_shape=jax.ShapeDtypeStruct((m, COLUMNS), jnp.float32),
    )(indices.reshape(m, 1))


# EVOLVE-BLOCK-END
