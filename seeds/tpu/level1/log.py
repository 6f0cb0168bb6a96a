"""Natural logarithm.

    out = log(x + 1e-7)

Inputs:
    x: (M, N) float32, positive
Returns:
    (M, N) float32, f32

A grid over blocks of 1024 whole rows.

Task: L1/log. The TPU-sized original of that seed.
Origin: written for pallas_evo from the formula; the task is PallasBench's.
SPDX-License-Identifier: Apache-2.0
"""

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl

# EVOLVE-BLOCK-START
BLOCK_M = 1024


def log_rows(x_ref, o_ref):
    o_ref[...] = jnp.log(x_ref[...] + 1e-7)


def kernel(x):
    m, n = x.shape
    block_m = min(BLOCK_M, m)
    rows = pl.BlockSpec((block_m, n), lambda i: (i, 0))
    return pl.pallas_call(
        log_rows,
        grid=(pl.cdiv(m, block_m),),
        in_specs=[rows],
        out_specs=rows,
        out_shape=jax.ShapeDtypeStruct((m, n), x.dtype),
    )(x)


# EVOLVE-BLOCK-END
