"""One-hot rows over the four nucleotides.

    out[n, c] = 1 where c == sequence[n] (A=0, C=1, G=2, T=3), else 0

Inputs:
    sequence: (L,) int32 in [0, 4)
Returns:
    (L, 4) float32, exact

A grid over blocks of 1024 whole rows; the indices come as a column.

Task: L1/nucleotide_onehot. The TPU-sized original of that seed.
Origin: written for pallas_evo from the formula; the task is PallasBench's.
SPDX-License-Identifier: Apache-2.0
"""

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl

# EVOLVE-BLOCK-START
BLOCK_M = 1024
COLUMNS = 4


def nucleotide_onehot_rows(sequence_ref, o_ref):
    columns = jax.lax.broadcasted_iota(jnp.int32, o_ref.shape, 1)
    o_ref[...] = jnp.where(columns == sequence_ref[...], 1.0, 0.0)


def kernel(sequence):
    m = sequence.shape[0]
    block_m = min(BLOCK_M, m)
    return pl.pallas_call(
        nucleotide_onehot_rows,
        grid=(pl.cdiv(m, block_m),),
        in_specs=[pl.BlockSpec((block_m, 1), lambda i: (i, 0))],
        out_specs=pl.BlockSpec((block_m, COLUMNS), lambda i: (i, 0)),
        out_shape=jax.ShapeDtypeStruct((m, COLUMNS), jnp.float32),
    )(sequence.reshape(m, 1))


# EVOLVE-BLOCK-END
