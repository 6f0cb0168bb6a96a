"""Attention weights: scaled query-key products and their row softmax.

    out = softmax(q @ k^T / sqrt(D), axis=-1)

Inputs:
    q: (N, D) float32
    k: (N, D) float32
Returns:
    (N, N) float32, dot (TF32 operands allowed)

Where all keys fit into shared memory a program makes its rows of scores whole and goes over them once; where they do
not it goes over the keys twice, as the seed does. Powers of two; edges are masked.

Task: L2/qk_softmax. Origin: a variant of the seed, written by hand; the task is PallasBench's.
SPDX-License-Identifier: Apache-2.0
"""

import math

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton as plgpu

# EVOLVE-BLOCK-START
BLOCK_M = 16
MIN_BLOCK = 16
NUM_WARPS = 4
NUM_STAGES = 1
LOG2_E = 1.4426950408889634
WHOLE_ELEMENTS = 16384  # of all keys together, in shared memory; more keys are walked in blocks
BLOCK_N = 64


def whole_rows(q_ref, k_ref, o_ref):
    n, d = q_ref.shape
    rows = (pl.program_id(0) * BLOCK_M + jnp.arange(BLOCK_M))[:, None]
    cols = jnp.arange(max(MIN_BLOCK, pl.next_power_of_2(n)))[None, :]
    ds = jnp.arange(max(MIN_BLOCK, pl.next_power_of_2(d)))
    q = plgpu.load(q_ref.at[rows, ds[None, :]], mask=(rows < n) & (ds[None, :] < d), other=0.0)
    k_t = plgpu.load(k_ref.at[cols, ds[:, None]], mask=(cols < n) & (ds[:, None] < d), other=0.0)
    scores = jnp.where(cols < n, jnp.dot(q, k_t) * (LOG2_E / math.sqrt(d)), -jnp.inf)
    p = jnp.exp2(scores - jnp.max(scores, axis=1)[:, None])
    plgpu.store(o_ref.at[rows, cols], p * (1.0 / jnp.sum(p, axis=1))[:, None], mask=(rows < n) & (cols < n))


def rows_by_blocks(q_ref, k_ref, o_ref):
    n, d = q_ref.shape
    rows = (pl.program_id(0) * BLOCK_M + jnp.arange(BLOCK_M))[:, None]
    ds = jnp.arange(max(MIN_BLOCK, pl.next_power_of_2(d)))
    q = plgpu.load(q_ref.at[rows, ds[None, :]], mask=(rows < n) & (ds[None, :] < d), other=0.0)

    def scores(block):
        cols = (block * BLOCK_N + jnp.arange(BLOCK_N))[None, :]
        k_t = plgpu.load(k_ref.at[cols, ds[:, None]], mask=(cols < n) & (ds[:, None] < d), other=0.0)
        return cols, jnp.where(cols < n, jnp.dot(q, k_t) * (LOG2_E / math.sqrt(d)), -jnp.inf)

    def gather(block, carry):
        row_max, row_sum = carry
        _, s = scores(block)
        new_max = jnp.maximum(row_max, jnp.max(s, axis=1))
        return new_max, row_sum * jnp.exp2(row_max - new_max) + jnp.sum(jnp.exp2(s - new_max[:, None]), axis=1)

    blocks = pl.cdiv(n, BLOCK_N)
    start = (jnp.full((BLOCK_M,), -jnp.inf, jnp.float32), jnp.zeros((BLOCK_M,), jnp.float32))
    row_max, row_sum = lax.fori_loop(0, blocks, gather, start)

    def write(block, carry):
        cols, s = scores(block)
        p = jnp.exp2(s - row_max[:, None]) * (1.0 / row_sum)[:, None]
        plgpu.store(o_ref.at[rows, cols], p, mask=(rows < n) & (cols < n))
        return carry

    lax.fori_loop(0, blocks, write, 0)


def kernel(q, k):
    n, d = q.shape
    elements = max(MIN_BLOCK, pl.next_power_of_2(n)) * max(MIN_BLOCK, pl.next_power_of_2(d))
    return pl.pallas_call(
        whole_rows if elements <= WHOLE_ELEMENTS else rows_by_blocks,
        grid=(pl.cdiv(n, BLOCK_M),),
        out_shape=jax.ShapeDtypeStruct((n, n), q.dtype),
        compiler_params=plgpu.CompilerParams(num_warps=NUM_WARPS, num_stages=NUM_STAGES),
    )(q, k)


# EVOLVE-BLOCK-END
