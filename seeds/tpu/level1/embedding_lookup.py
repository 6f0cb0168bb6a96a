"""Rows of a table by index.

    out[n, :] = table[indices[n], :]

Inputs:
    table: (V, D) float32
    indices: (N,) int32 in [0, V)
Returns:
    (N, D) float32, exact

The indices are prefetched as scalars and choose the block that each program copies: one whole row of the table.

Task: L1/embedding_lookup. The TPU-sized original of that seed.
Origin: written for pallas_evo from the formula; the task is PallasBench's.
SPDX-License-Identifier: Apache-2.0
"""

import jax
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

# EVOLVE-BLOCK-START


def copy_row(indices_ref, row_ref, o_ref):
    o_ref[...] = row_ref[...]


def kernel(table, indices):
    v, d = table.shape
    n = indices.shape[0]
    # A row alone is no legal TPU block; a (1, D) slice of a (V, 1, D) table is.
    out = pl.pallas_call(
        copy_row,
        grid_spec=pltpu.PrefetchScalarGridSpec(
            num_scalar_prefetch=1,
            grid=(n,),
            in_specs=[pl.BlockSpec((None, 1, d), lambda i, indices_ref: (indices_ref[i], 0, 0))],
            out_specs=pl.BlockSpec((None, 1, d), lambda i, indices_ref: (i, 0, 0)),
        ),
        out_shape=jax.ShapeDtypeStruct((n, 1, d), table.dtype),
    )(indices, table.reshape(v, 1, d))
    return out.reshape(n, d)


# EVOLVE-BLOCK-END
