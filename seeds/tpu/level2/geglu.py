"""GeGLU, GELU by its tanh approximation.

    out = gelu(x @ w_gate) * (x @ w_up)

Inputs:
    x: (M, K) float32
    w_gate: (K, F) float32
    w_up: (K, F) float32
Returns:
    (M, F) float32, dot

Whole-K blocks: 512 rows of x times 512 columns of both weights, two products a program.

Task: L2/geglu. The TPU-sized original of that seed.
Origin: written for pallas_evo from the formula; the task is PallasBench's.
SPDX-License-Identifier: Apache-2.0
"""

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl

# EVOLVE-BLOCK-START
BLOCK_M = 512
BLOCK_F = 512


def geglu_block(x_ref, w_gate_ref, w_up_ref, o_ref):
    x = x_ref[...]
    gate = jnp.dot(x, w_gate_ref[...], preferred_element_type=jnp.float32)
    up = jnp.dot(x, w_up_ref[...], preferred_element_type=jnp.float32)
    o_ref[...] = 0.5 * gate * (1.0 + jnp.tanh(0.7978845608028654 * (gate + 0.044715 * gate * gate * gate))) * up


def kernel(x, w_gate, w_up):
    m, k = x.shape
    f = w_gate.shape[1]
    block_m, block_f = min(BLOCK_M, m), min(BLOCK_F, f)
    columns = pl.BlockSpec((k, block_f), lambda i, j: (0, j))
    return pl.pallas_call(
        geglu_block,
        grid=(pl.cdiv(m, block_m), pl.cdiv(f, block_f)),
        in_specs=[pl.BlockSpec((block_m, k), lambda i, j: (i, 0)), columns, columns],
        out_specs=pl.BlockSpec((block_m, block_f), lambda i, j: (i, j)),
        out_shape=jax.ShapeDtypeStruct((m, f), x.dtype),
    )(x, w_gate, w_up)


# EVOLVE-BLOCK-END
