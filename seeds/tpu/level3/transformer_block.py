"""Pre-norm transformer block with one head.

    n = x rsqrt(mean(x^2, -1) + 1e-5)
    h = x + (softmax((n wq) (n wk)^T / sqrt(E)) (n wv)) wo
    out = h + max((h rsqrt(mean(h^2, -1) + 1e-5)) w_ff, 0)

Inputs:
    x: (N, D) float32
    wq, wk, wv: (D, E) float32
    wo: (E, D) float32
    w_ff: (D, D) float32
Returns:
    (N, D) float32, dot

One program holds everything: the block and its weights fit VMEM, so nothing is written between the steps.

Task: L3/transformer_block. The TPU-sized original of that seed.
Origin: written for pallas_evo from the formula; the task is PallasBench's.
SPDX-License-Identifier: Apache-2.0
"""

import math

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl

# EVOLVE-BLOCK-START


def product(a, b):
    return jnp.dot(a, b, preferred_element_type=jnp.float32)


def rms_normalised(x):
    return x * lax.rsqrt(jnp.mean(x * x, axis=1, keepdims=True) + 1e-5)


def block_whole(x_ref, wq_ref, wk_ref, wv_ref, wo_ref, w_ff_ref, o_ref):
    x = x_ref[...]
    n = rms_normalised(x)
    q = product(n, wq_ref[...]) * (1.0 / math.sqrt(wq_ref.shape[1]))
    k, v = product(n, wk_ref[...]), product(n, wv_ref[...])
    scores = lax.dot_general(q, k, (((1,), (1,)), ((), ())), preferred_element_type=jnp.float32)
    e = jnp.exp(scores - jnp.max(scores, axis=1, keepdims=True))
    attended = product(e / jnp.sum(e, axis=1, keepdims=True), v)
    h = x + product(attended, wo_ref[...])
    o_ref[...] = h + jnp.maximum(product(rms_normalised(h), w_ff_ref[...]), 0.0)


def kernel(x, wq, wk, wv, wo, w_ff):
    return pl.pallas_call(
        block_whole,
        out_shape=jax.ShapeDtypeStruct(x.shape, x.dtype),
    )(x, wq, wk, wv, wo, w_ff)


# EVOLVE-BLOCK-END
