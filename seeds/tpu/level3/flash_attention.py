"""Attention without the (N, N) matrix in memory.

    out = softmax(q @ k^T / sqrt(D), -1) @ v

Inputs:
    q: (N, D) float32
    k: (N, D) float32
    v: (N, D) float32
Returns:
    (N, D) float32, dot

Blocks of 1024 queries; all keys and values stay in VMEM and are walked 512 at a time with a running softmax.

Task: L3/flash_attention. The TPU-sized original of that seed.
Origin: written for pallas_evo from the formula; the task is PallasBench's.
SPDX-License-Identifier: Apache-2.0
"""

import math

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl

# EVOLVE-BLOCK-START
BLOCK_Q = 1024
BLOCK_K = 512


def attend_rows(q_ref, k_ref, v_ref, o_ref):
    block_q, d = q_ref.shape
    n = k_ref.shape[0]
    block_k = min(BLOCK_K, n)
    q = q_ref[...] * (1.0 / math.sqrt(d))

    def step(block, carry):
        row_max, row_sum, out = carry
        keys = pl.ds(pl.multiple_of(block * block_k, block_k), block_k)
        scores = lax.dot_general(q, k_ref[keys, :], (((1,), (1,)), ((), ())), preferred_element_type=jnp.float32)
        new_max = jnp.maximum(row_max, jnp.max(scores, axis=1, keepdims=True))
        weights = jnp.exp(scores - new_max)
        rescale = jnp.exp(row_max - new_max)
        row_sum = row_sum * rescale + jnp.sum(weights, axis=1, keepdims=True)
        out = out * rescale + jnp.dot(weights, v_ref[keys, :], preferred_element_type=jnp.float32)
        return new_max, row_sum, out

    start = (
        jnp.full((block_q, 1), -jnp.inf, jnp.float32),
        jnp.zeros((block_q, 1), jnp.float32),
        jnp.zeros((block_q, d), jnp.float32),
    )
    _, row_sum, out = lax.fori_loop(0, n // block_k, step, start)
    o_ref[...] = out / row_sum


def kernel(q, k, v):
    n, d = q.shape
    block_q = min(BLOCK_Q, n)
    rows = pl.BlockSpec((block_q, d), lambda i: (i, 0))
    whole = pl.BlockSpec((n, d), lambda i: (0, 0))
    return pl.pallas_call(
        attend_rows,
        grid=(pl.cdiv(n, block_q),),
        in_specs=[rows, whole, whole],
        out_specs=rows,
        out_shape=jax.ShapeDtypeStruct((n, d), q.dtype),
    )(q, k, v)


# EVOLVE-BLOCK-END
