"""Position weight matrix scan: a motif's score at every place of a sequence.

    out[p] = sum_{t < T, c < 4} sequence_onehot[p + t, c] pwm[c, t]

Inputs:
    sequence_onehot: (L, 4) float32, one-hot rows
    pwm: (4, T) float32, with T <= L
Returns:
    (L - T + 1,) float32, f32

One program per block of places walks the motif; each step multiplies a (places, letters) tile of the sequence by one
column of the matrix.

Task: L2/pwm_scan. Origin: written for pallas_evo from the formula; the task is PallasBench's.
SPDX-License-Identifier: Apache-2.0
"""

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton as plgpu

# EVOLVE-BLOCK-START
BLOCK_P = 64
NUM_LETTERS = 4
NUM_WARPS = 2
NUM_STAGES = 1


def pwm_scan_block(sequence_ref, pwm_ref, o_ref):
    places = o_ref.shape[0]
    ps = pl.program_id(0) * BLOCK_P + jnp.arange(BLOCK_P)
    letters = jnp.arange(NUM_LETTERS)
    inside = jnp.broadcast_to((ps < places)[:, None], (BLOCK_P, NUM_LETTERS))

    def step(t, total):
        weights = plgpu.load(pwm_ref.at[letters, t])
        bases = plgpu.load(sequence_ref.at[(ps + t)[:, None], letters[None, :]], mask=inside, other=0.0)
        return total + jnp.sum(bases * weights[None, :], axis=1)

    total = lax.fori_loop(0, pwm_ref.shape[1], step, jnp.zeros((BLOCK_P,), jnp.float32))
    plgpu.store(o_ref.at[ps], total, mask=ps < places)


def kernel(sequence_onehot, pwm):
    places = sequence_onehot.shape[0] - pwm.shape[1] + 1
    return pl.pallas_call(
        pwm_scan_block,
        grid=(pl.cdiv(places, BLOCK_P),),
        out_shape=jax.ShapeDtypeStruct((places,), pwm.dtype),
        compiler_params=plgpu.CompilerParams(num_warps=NUM_WARPS, num_stages=NUM_STAGES),
    )(sequence_onehot, pwm)


# EVOLVE-BLOCK-END
