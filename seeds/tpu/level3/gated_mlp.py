"""Gated MLP.

    out = (silu(x @ w_gate) * (x @ w_up)) @ w_down

Inputs:
    x: (M, D) float32
    w_gate: (D, F) float32
    w_up: (D, F) float32
    w_down: (F, D) float32
Returns:
    (M, D) float32, dot

Blocks of 256 whole rows against the whole weights, so that the hidden layer never leaves VMEM.

Task: L3/gated_mlp. The TPU-sized original of that seed.
Origin: written for pallas_evo from the formula; the task is PallasBench's.
SPDX-License-Identifier: Apache-2.0
"""

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl

# EVOLVE-BLOCK-START
BLOCK_M = 256


def gated_mlp_rows(x_ref, w_gate_ref, w_up_ref, w_down_ref, o_ref):
    x = x_ref[...]
    gate = jnp.dot(x, w_gate_ref[...], preferred_element_type=jnp.float32)
    up = jnp.dot(x, w_up_ref[...], preferred_element_type=jnp.float32)
    hidden = gate / (1.0 + jnp.exp(-gate)) * up
    o_ref[...] = jnp.dot(hidden, w_down_ref[...], preferred_element_type=jnp.float32)


def kernel(x, w_gate, w_up, w_down):
    m, d = x.shape
    f = w_gate.shape[1]
    block_m = min(BLOCK_M, m)
    rows = pl.BlockSpec((block_m, d), lambda i: (i, 0))
    widening = pl.BlockSpec((d, f), lambda i: (0, 0))
    return pl.pallas_call(
        gated_mlp_rows,
        grid=(pl.cdiv(m, block_m),),
        in_specs=[rows, widening, widening, pl.BlockSpec((f, d), lambda i: (0, 0))],
        out_specs=rows,
        out_shape=jax.ShapeDtypeStruct((m, d), x.dtype),
    )(x, w_gate, w_up, w_down)


# EVOLVE-BLOCK-END
