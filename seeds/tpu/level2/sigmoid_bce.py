"""Binary cross-entropy with logits, elementwise.

    out = max(z, 0) - z t + log(1 + exp(-|z|)),   z = logits, t = targets

Inputs:
    logits: (M, N) float32
    targets: (M, N) float32 in [0, 1]
Returns:
    (M, N) float32, f32

A grid over blocks of 1024 whole rows.

Task: L2/sigmoid_bce. The TPU-sized original of that seed.
Origin: written for pallas_evo from the formula; the task is PallasBench's.
SPDX-License-Identifier: Apache-2.0
"""

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl

# EVOLVE-BLOCK-START
BLOCK_M = 1024


def sigmoid_bce_rows(logits_ref, targets_ref, o_ref):
    z, t = logits_ref[...], targets_ref[...]
    o_ref[...] = jnp.maximum(z, 0.0) - z * t + jnp.log1p(jnp.exp(-jnp.abs(z)))


def kernel(logits, targets):
    m, n = logits.shape
    block_m = min(BLOCK_M, m)
    rows = pl.BlockSpec((block_m, n), lambda i: (i, 0))
    return pl.pallas_call(
        sigmoid_bce_rows,
        grid=(pl.cdiv(m, block_m),),
        in_specs=[rows, rows],
        out_specs=rows,
        out_shape=jax.ShapeDtypeStruct((m, n), logits.dtype),
    )(logits, targets)


# EVOLVE-BLOCK-END
