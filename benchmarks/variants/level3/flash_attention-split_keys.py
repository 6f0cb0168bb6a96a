"""Attention without the (N, N) matrix in memory.

    out = softmax(q @ k^T / sqrt(D), axis=-1) @ v

Inputs:
    q: (N, D) float32
    k: (N, D) float32
    v: (N, D) float32
Returns:
    (N, D) float32, dot (TF32 operands allowed)

The keys are cut into SPLITS stretches, each walked by programs of its own with an online softmax, so that few queries
keep many multiprocessors busy; a second kernel puts the stretches together. Edges are masked.

Task: L3/flash_attention. Origin: a variant of the seed, written by hand; the task is PallasBench's.
SPDX-License-Identifier: Apache-2.0
"""

import math

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton as plgpu

# EVOLVE-BLOCK-START
BLOCK_M = 32
BLOCK_N = 64
SPLITS = 4
MIN_BLOCK_D = 16
NUM_WARPS = 4
NUM_STAGES = 2
LOG2_E = 1.4426950408889634
LEAST = -1e30  # of a stretch that holds no key


def part_of_keys(q_ref, k_ref, v_ref, out_ref, max_ref, sum_ref):
    """BLOCK_M queries against one of SPLITS stretches of the keys: what softmax gives there, not yet divided."""
    n, d = q_ref.shape
    rows = pl.program_id(0) * BLOCK_M + jnp.arange(BLOCK_M)
    split = pl.program_id(1)
    ds = jnp.arange(max(MIN_BLOCK_D, pl.next_power_of_2(d)))
    inside = (rows[:, None] < n) & (ds[None, :] < d)
    q = plgpu.load(q_ref.at[rows[:, None], ds[None, :]], mask=inside, other=0.0)
    turns = pl.cdiv(pl.cdiv(n, BLOCK_N), SPLITS)

    def step(turn, carry):
        row_max, row_sum, out = carry
        keys = (split * turns + turn) * BLOCK_N + jnp.arange(BLOCK_N)
        k_t = plgpu.load(k_ref.at[keys[None, :], ds[:, None]], mask=(keys[None, :] < n) & (ds[:, None] < d), other=0.0)
        v = plgpu.load(v_ref.at[keys[:, None], ds[None, :]], mask=(keys[:, None] < n) & (ds[None, :] < d), other=0.0)
        scores = jnp.where(keys[None, :] < n, jnp.dot(q, k_t) * (LOG2_E / math.sqrt(d)), LEAST)
        new_max = jnp.maximum(row_max, jnp.max(scores, axis=1))
        p = jnp.where(keys[None, :] < n, jnp.exp2(scores - new_max[:, None]), 0.0)
        shrink = jnp.exp2(row_max - new_max)
        return new_max, row_sum * shrink + jnp.sum(p, axis=1), out * shrink[:, None] + jnp.dot(p, v)

    start = (
        jnp.full((BLOCK_M,), LEAST, jnp.float32),
        jnp.zeros((BLOCK_M,), jnp.float32),
        jnp.zeros((BLOCK_M, ds.shape[0]), jnp.float32),
    )
    row_max, row_sum, out = lax.fori_loop(0, turns, step, start)
    plgpu.store(out_ref.at[split, rows[:, None], ds[None, :]], out, mask=inside)
    plgpu.store(max_ref.at[split, rows], row_max, mask=rows < n)
    plgpu.store(sum_ref.at[split, rows], row_sum, mask=rows < n)


def joined_rows(out_ref, max_ref, sum_ref, o_ref):
    """The stretches of one query's keys put together."""
    d = o_ref.shape[1]
    row = pl.program_id(0)
    ds = jnp.arange(pl.next_power_of_2(d))
    splits = jnp.arange(SPLITS)
    maxima = plgpu.load(max_ref.at[splits, row])
    weights = jnp.exp2(maxima - jnp.max(maxima))
    sums = plgpu.load(sum_ref.at[splits, row])
    inside = (splits[:, None] >= 0) & (ds[None, :] < d)
    outs = plgpu.load(out_ref.at[splits[:, None], row, ds[None, :]], mask=inside, other=0.0)
    total = jnp.sum(outs * weights[:, None], axis=0) / jnp.sum(sums * weights)
    plgpu.store(o_ref.at[row, ds], total, mask=ds < d)


def kernel(q, k, v):
    n, d = q.shape
    params = plgpu.CompilerParams(num_warps=NUM_WARPS, num_stages=NUM_STAGES)
    line = jax.ShapeDtypeStruct((SPLITS, n), q.dtype)
    parts = pl.pallas_call(
        part_of_keys,
        grid=(pl.cdiv(n, BLOCK_M), SPLITS),
        out_shape=(jax.ShapeDtypeStruct((SPLITS, n, d), q.dtype), line, line),
        compiler_params=params,
    )(q, k, v)
    return pl.pallas_call(
        joined_rows,
        grid=(n,),
        out_shape=jax.ShapeDtypeStruct((n, d), q.dtype),
        compiler_params=plgpu.CompilerParams(num_warps=1, num_stages=1),
    )(*parts)


# EVOLVE-BLOCK-END
