"""Attention without the (N, N) matrix in memory.

    out = softmax(q @ k^T / sqrt(D), axis=-1) @ v

Inputs:
    q: (N, D) float32
    k: (N, D) float32
    v: (N, D) float32
Returns:
    (N, D) float32, dot (TF32 operands allowed)

One program per block of queries walks the keys with an online softmax in powers of two, whose factor goes
into that of the scores. Where whole blocks make up a size nothing is masked.

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
BLOCK_M = 16
BLOCK_N = 64
MIN_BLOCK_D = 16
NUM_WARPS = 4
WIDE_D = 64  # past this, twice the warps: one program's output no longer fits the registers of the usual number
NUM_STAGES = 3
LOG2_E = 1.4426950408889634


def below(index, size, block):
    """index < size, or an index that is always below where whole blocks make up the size."""
    return index >= 0 if size % block == 0 else index < size


def flash_attention_rows(q_ref, k_ref, v_ref, o_ref):
    n, d = q_ref.shape
    rows = (pl.program_id(0) * BLOCK_M + jnp.arange(BLOCK_M))[:, None]
    block_d = max(MIN_BLOCK_D, pl.next_power_of_2(d))
    ds = jnp.arange(block_d)
    inside = below(rows, n, BLOCK_M) & below(ds[None, :], d, block_d)
    q = plgpu.load(q_ref.at[rows, ds[None, :]], mask=inside, other=0.0)

    def step(block, carry):
        row_max, row_sum, out = carry
        keys = block * BLOCK_N + jnp.arange(BLOCK_N)
        key_inside = below(keys, n, BLOCK_N)
        inside_k = key_inside[None, :] & below(ds[:, None], d, block_d)
        inside_v = key_inside[:, None] & below(ds[None, :], d, block_d)
        k_t = plgpu.load(k_ref.at[keys[None, :], ds[:, None]], mask=inside_k, other=0.0)
        v = plgpu.load(v_ref.at[keys[:, None], ds[None, :]], mask=inside_v, other=0.0)
        scores = jnp.where(key_inside[None, :], jnp.dot(q, k_t) * (LOG2_E / math.sqrt(d)), -jnp.inf)
        new_max = jnp.maximum(row_max, jnp.max(scores, axis=1))
        p = jnp.exp2(scores - new_max[:, None])
        shrink = jnp.exp2(row_max - new_max)
        return new_max, row_sum * shrink + jnp.sum(p, axis=1), out * shrink[:, None] + jnp.dot(p, v)

    start = (
        jnp.full((BLOCK_M,), -jnp.inf, jnp.float32),
        jnp.zeros((BLOCK_M,), jnp.float32),
        jnp.zeros((BLOCK_M, block_d), jnp.float32),
    )
    _, row_sum, out = lax.fori_loop(0, pl.cdiv(n, BLOCK_N), step, start)
    plgpu.store(o_ref.at[rows, ds[None, :]], out / row_sum[:, None], mask=inside)


def kernel(q, k, v):
    num_warps = NUM_WARPS if q.shape[-1] <= WIDE_D else 2 * NUM_WARPS
    n = q.shape[0]
    return pl.pallas_call(
        flash_attention_rows,
        grid=(pl.cdiv(n, BLOCK_M),),
        out_shape=jax.ShapeDtypeStruct(q.shape, q.dtype),
        compiler_params=plgpu.CompilerParams(num_warps=num_warps, num_stages=NUM_STAGES),
    )(q, k, v)


# EVOLVE-BLOCK-END
