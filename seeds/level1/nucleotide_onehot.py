"""One-hot rows over the four nucleotides.

    out[t, c] = 1 where c == sequence[t], else 0 (A = 0, C = 1, G = 2, T = 3)

Inputs:
    sequence: (L,) int32, in [0, 4)
Returns:
    (L, 4) float32, exact

Each program compares a stretch of the sequence with the four column numbers; positions past the end are masked.

Task: L1/nucleotide_onehot. Origin: written for pallas_evo from the formula; the task is PallasBench's.
SPDX-License-Identifier: Apache-2.0
"""

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton as plgpu

# EVOLVE-BLOCK-START
LETTERS = 4
BLOCK_L = 256
NUM_WARPS = 4
NUM_STAGES = 1


def nucleotide_onehot_tile(sequence_ref, o_ref):
    length = sequence_ref.shape[0]
    positions = pl.program_id(0) * BLOCK_L + jnp.arange(BLOCK_L)
    letters = jnp.arange(LETTERS)[None, :]
    sequence = plgpu.load(sequence_ref.at[positions], mask=positions < length, other=0)
    hot = jnp.where(letters == sequence[:, None], 1.0, 0.0).astype(jnp.float32)
    inside = (positions[:, None] < length) & (letters < LETTERS)
    plgpu.store(o_ref.at[positions[:, None], letters], hot, mask=inside)


def kernel(sequence):
    length = sequence.shape[0]
    return pl.pallas_call(
        nucleotide_onehot_tile,
        grid=(pl.cdiv(length, BLOCK_L),),
        out_shape=jax.ShapeDtypeStruct((length, LETTERS), jnp.float32),
        compiler_params=plgpu.CompilerParams(num_warps=NUM_WARPS, num_stages=NUM_STAGES),
    )(sequence)


# EVOLVE-BLOCK-END
