"""Triangle multiplicative update of a pair representation.

    p = pair * mask[:, :, None]
    out[i, j, c] = pair[i, j, c] + sum_k p[i, k, c] p[k, j, c]

Inputs:
    pair: (N, N, C) float32
    mask: (N, N) float32, zeros and ones
Returns:
    (N, N, C) float32, dot (TF32 operands allowed)

Channels stay where they are: a program walks k and multiplies lines of channels in float32, without tensor
instructions, so that nothing has to be transposed before or after. Edges are masked.

Task: L3/triangle_update. Origin: a variant of the seed, written by hand; the task is PallasBench's.
SPDX-License-Identifier: Apache-2.0
"""

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton as plgpu

# EVOLVE-BLOCK-START
BLOCK_I = 4
BLOCK_J = 8
BLOCK_C = 32
NUM_WARPS = 4
NUM_STAGES = 3


def triangle_update_tile(pair_ref, mask_ref, o_ref):
    n, _, c = pair_ref.shape
    rows = pl.program_id(0) * BLOCK_I + jnp.arange(BLOCK_I)
    cols = pl.program_id(1) * BLOCK_J + jnp.arange(BLOCK_J)
    channels = pl.program_id(2) * BLOCK_C + jnp.arange(BLOCK_C)

    def masked(i, j, inside):
        """pair[i, j, channels] * mask[i, j], a line of channels for each of BLOCK_I or BLOCK_J pairs."""
        weight = plgpu.load(mask_ref.at[i, j], mask=inside, other=0.0)
        inside = inside[:, None] & (channels[None, :] < c)
        line = plgpu.load(pair_ref.at[i[:, None], j[:, None], channels[None, :]], mask=inside, other=0.0)
        return line * weight[:, None]

    def step(k, total):
        left = masked(rows, jnp.full((BLOCK_I,), k), rows < n)
        right = masked(jnp.full((BLOCK_J,), k), cols, cols < n)
        return total + left[:, None, :] * right[None, :, :]

    total = lax.fori_loop(0, n, step, jnp.zeros((BLOCK_I, BLOCK_J, BLOCK_C), jnp.float32))
    inside = (rows < n)[:, None, None] & (cols < n)[None, :, None] & (channels < c)[None, None, :]
    place = (rows[:, None, None], cols[None, :, None], channels[None, None, :])
    residual = plgpu.load(pair_ref.at[place], mask=inside, other=0.0)
    plgpu.store(o_ref.at[place], residual + total, mask=inside)


def kernel(pair, mask):
    n, _, c = pair.shape
    return pl.pallas_call(
        triangle_update_tile,
        grid=(pl.cdiv(n, BLOCK_I), pl.cdiv(n, BLOCK_J), pl.cdiv(c, BLOCK_C)),
        out_shape=jax.ShapeDtypeStruct(pair.shape, pair.dtype),
        compiler_params=plgpu.CompilerParams(num_warps=NUM_WARPS, num_stages=NUM_STAGES),
    )(pair, mask)


# EVOLVE-BLOCK-END
