"""Cosine similarity of each pair of rows.

    out[i] = sum_j x[i, j] y[i, j] / (|x[i, :]| |y[i, :]| + 1e-8)

Inputs:
    x: (M, N) float32
    y: (M, N) float32
Returns:
    (M,) float32, f32

A grid over blocks of 1024 whole rows; each block writes one column.

Task: L1/cosine_sim. The TPU-sized original of that seed.
Origin: written for pallas_evo from the formula; the task is PallasBench's.
SPDX-License-Identifier: Apache-2.0
"""

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl

# EVOLVE-BLOCK-START
BLOCK_M = 1024


def cosine_sim_rows(x_ref, y_ref, o_ref):
    x, y = x_ref[...], y_ref[...]
    dots = jnp.sum(x * y, axis=1, keepdims=True)
    norms = jnp.sqrt(jnp.sum(x * x, axis=1, keepdims=True)) * jnp.sqrt(jnp.sum(y * y, axis=1, keepdims=True))
    o_ref[...] = dots / (norms + 1e-8)


def kernel(x, y):
    m, n = x.shape
    block_m = min(BLOCK_M, m)
    rows = pl.BlockSpec((block_m, n), lambda i: (i, 0))
    out = pl.pallas_call(
        cosine_sim_rows,
        grid=(pl.cdiv(m, block_m),),
        in_specs=[rows, rows],
        out_specs=pl.BlockSpec((block_m, 1), lambda i: (i, 0)),
        out_shape=jax.ShapeDtypeStruct((m, 1), x.dtype),
    )(x, y)
    return out.reshape(m)


# EVOLVE-BLOCK-END
