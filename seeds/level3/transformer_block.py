"""Transformer block: pre-norm attention with one head, then a one-layer feed-forward, both with a residual.

    norm(x) = x rsqrt(mean(x^2, -1) + 1e-5)
    n = norm(x)
    a = softmax((n @ wq) @ (n @ wk)^T / sqrt(E), axis=-1) @ (n @ wv)
    h = x + a @ wo
    out = h + max(norm(h) @ w_ff, 0)

Inputs:
    x: (N, D) float32
    wq, wk, wv: (D, E) float32
    wo: (E, D) float32
    w_ff: (D, D) float32
Returns:
    (N, D) float32, dot (TF32 operands allowed)

Six kernels in a row: norm, the three projections at once, attention with an online softmax, output projection with
its residual, norm, feed-forward with its residual. Products walk their inner dimension in blocks; edges are masked.

Task: L3/transformer_block. Origin: written for pallas_evo from the formula; the task is PallasBench's.
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
BLOCK_N = 32
BLOCK_K = 32
MIN_BLOCK_E = 16
NUM_WARPS = 4
WIDE_E = 64  # past this, attention gets twice the warps: its output no longer fits the registers of the usual number
NUM_STAGES = 2
EPSILON = 1e-5


def load_tile(ref, rows, cols):
    inside = (rows < ref.shape[0]) & (cols < ref.shape[1])
    return plgpu.load(ref.at[rows, cols], mask=inside, other=0.0)


def store_tile(ref, rows, cols, value):
    plgpu.store(ref.at[rows, cols], value, mask=(rows < ref.shape[0]) & (cols < ref.shape[1]))


def tile_indices():
    rows = pl.program_id(0) * BLOCK_M + jnp.arange(BLOCK_M)
    cols = pl.program_id(1) * BLOCK_N + jnp.arange(BLOCK_N)
    return rows[:, None], cols[None, :]


def products(x_ref, w_refs, rows, cols):
    def step(block, totals):
        ks = block * BLOCK_K + jnp.arange(BLOCK_K)
        x = load_tile(x_ref, rows, ks[None, :])
        return tuple(
            total + jnp.dot(x, load_tile(w_ref, ks[:, None], cols)) for total, w_ref in zip(totals, w_refs, strict=True)
        )

    zeros = jnp.zeros((BLOCK_M, BLOCK_N), jnp.float32)
    return lax.fori_loop(0, pl.cdiv(x_ref.shape[1], BLOCK_K), step, (zeros,) * len(w_refs))


def norm_row(x_ref, o_ref):
    d = x_ref.shape[1]
    row = pl.program_id(0)
    cols = jnp.arange(pl.next_power_of_2(d))
    x = plgpu.load(x_ref.at[row, cols], mask=cols < d, other=0.0)
    scale = 1.0 / jnp.sqrt(jnp.sum(x * x) * (1.0 / d) + EPSILON)
    plgpu.store(o_ref.at[row, cols], x * scale, mask=cols < d)


def projections_tile(n_ref, wq_ref, wk_ref, wv_ref, q_ref, k_ref, v_ref):
    rows, cols = tile_indices()
    tiles = products(n_ref, (wq_ref, wk_ref, wv_ref), rows, cols)
    for ref, tile in zip((q_ref, k_ref, v_ref), tiles, strict=True):
        store_tile(ref, rows, cols, tile)


def attention_rows(q_ref, k_ref, v_ref, o_ref):
    n, e = q_ref.shape
    rows = (pl.program_id(0) * BLOCK_M + jnp.arange(BLOCK_M))[:, None]
    es = jnp.arange(max(MIN_BLOCK_E, pl.next_power_of_2(e)))
    q = load_tile(q_ref, rows, es[None, :])

    def step(block, carry):
        row_max, row_sum, out = carry
        keys = block * BLOCK_N + jnp.arange(BLOCK_N)
        k_t = load_tile(k_ref, keys[None, :], es[:, None])
        v = load_tile(v_ref, keys[:, None], es[None, :])
        scores = jnp.where(keys[None, :] < n, jnp.dot(q, k_t) * (1.0 / math.sqrt(e)), -jnp.inf)
        new_max = jnp.maximum(row_max, jnp.max(scores, axis=1))
        p = jnp.exp(scores - new_max[:, None])
        shrink = jnp.exp(row_max - new_max)
        return new_max, row_sum * shrink + jnp.sum(p, axis=1), out * shrink[:, None] + jnp.dot(p, v)

    start = (
        jnp.full((BLOCK_M,), -jnp.inf, jnp.float32),
        jnp.zeros((BLOCK_M,), jnp.float32),
        jnp.zeros((BLOCK_M, es.shape[0]), jnp.float32),
    )
    _, row_sum, out = lax.fori_loop(0, pl.cdiv(n, BLOCK_N), step, start)
    store_tile(o_ref, rows, es[None, :], out / row_sum[:, None])


def output_tile(x_ref, a_ref, wo_ref, o_ref):
    rows, cols = tile_indices()
    (projected,) = products(a_ref, (wo_ref,), rows, cols)
    store_tile(o_ref, rows, cols, load_tile(x_ref, rows, cols) + projected)


def feed_forward_tile(h_ref, n_ref, w_ff_ref, o_ref):
    rows, cols = tile_indices()
    (hidden,) = products(n_ref, (w_ff_ref,), rows, cols)
    store_tile(o_ref, rows, cols, load_tile(h_ref, rows, cols) + jnp.maximum(hidden, 0.0))


def kernel(x, wq, wk, wv, wo, w_ff):
    n, d = x.shape
    e = wq.shape[1]
    wide = jax.ShapeDtypeStruct((n, d), x.dtype)
    narrow = jax.ShapeDtypeStruct((n, e), x.dtype)
    wide_grid = (pl.cdiv(n, BLOCK_M), pl.cdiv(d, BLOCK_N))
    narrow_grid = (pl.cdiv(n, BLOCK_M), pl.cdiv(e, BLOCK_N))

    def call(body, grid, out_shape, num_warps=NUM_WARPS):
        params = plgpu.CompilerParams(num_warps=num_warps, num_stages=NUM_STAGES)
        return pl.pallas_call(body, grid=grid, out_shape=out_shape, compiler_params=params)

    normed = call(norm_row, (n,), wide)(x)
    q, k, v = call(projections_tile, narrow_grid, (narrow, narrow, narrow))(normed, wq, wk, wv)
    attention_warps = NUM_WARPS if e <= WIDE_E else 2 * NUM_WARPS
    a = call(attention_rows, narrow_grid[:1], narrow, attention_warps)(q, k, v)
    h = call(output_tile, wide_grid, wide)(x, a, wo)
    normed = call(norm_row, (n,), wide)(h)
    return call(feed_forward_tile, wide_grid, wide)(h, normed, w_ff)


# EVOLVE-BLOCK-END
