"""Layer normalisation of each row, then a residual.

    out[i, :] = (x[i, :] - mean(x[i, :])) / sqrt(var(x[i, :]) + 1e-5) + residual[i, :]

Inputs:
    x: (M, N) float32
    residual: (M, N) float32
Returns:
    (M, N) float32, f32

A grid over blocks of 1024 whole rows.

Task: L2/layernorm_residual. The TPU-sized original of that seed.
Origin: written for pallas_evo from the formula; the task is PallasBench's.
SPDX-License-Identifier: Apache-2.0
"""

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl

# EVOLVE-BLOCK-START
BLOCK_M = 1024


def layernorm_residual_rows(x_ref, residual_ref, o_ref):
    x = x_ref[...]
    centred = x - jnp.mean(x, axis=1, keepdims=True)
    variance = jnp.mean(centred * centred, axis=1, keepdims=True)
    o_ref[...] = centred / jnp.sqrt(variance + 1e-5) + residual_ref[...]


def kernel(x, residual):
    m, n = x.shape
    block_m = min(BLOCK_M, m)
    rows = pl.BlockSpec((block_m, n), lambda i: (i, 0))
    return pl.pallas_call(
        layernorm_residual_rows,
        grid=(pl.cdiv(m, block_m),),
        in_specs=[rows, rows],
        out_specs=rows,
        out_shape=jax.ShapeDtypeStruct((m, n), x.dtype),
    )(x, residual)


# EVOLVE-BLOCK-END
