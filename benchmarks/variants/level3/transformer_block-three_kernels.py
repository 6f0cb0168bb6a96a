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

Three kernels in a row: a norm scales a row, so that its factor is found while the product is made and applied last;
attention and the output projection are one kernel. Edges are masked.

Task: L3/transformer_block. Origin: a variant of the seed, written by hand; the task is PallasBench's.
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
BLOCK_N = 32
BLOCK_K = 64
MIN_BLOCK_E = 16
NUM_WARPS = 4
NUM_STAGES = 3
EPSILON = 1e-5
LOG2_E = 1.4426950408889634


def load_tile(ref, rows, cols):
    inside = (rows < ref.shape[0]) & (cols < ref.shape[1])
    return plgpu.load(ref.at[rows, cols], mask=inside, other=0.0)


def store_tile(ref, rows, cols, value):
    plgpu.store(ref.at[rows, cols], value, mask=(rows < ref.shape[0]) & (cols < ref.shape[1]))


def normed_products(x_ref, w_refs, rows, cols):
    """norm(x) @ w for each w: a row's factor is found on the way and comes last."""
    d = x_ref.shape[1]

    def step(block, carry):
        squares, totals = carry
        ks = block * BLOCK_K + jnp.arange(BLOCK_K)
        x = load_tile(x_ref, rows, ks[None, :])
        products = [
            total + jnp.dot(x, load_tile(w_ref, ks[:, None], cols)) for total, w_ref in zip(totals, w_refs, strict=True)
        ]
        return squares + jnp.sum(x * x, axis=1), tuple(products)

    zeros = jnp.zeros((BLOCK_M, BLOCK_N), jnp.float32)
    start = (jnp.zeros((BLOCK_M,), jnp.float32), (zeros,) * len(w_refs))
    squares, totals = lax.fori_loop(0, pl.cdiv(d, BLOCK_K), step, start)
    scale = lax.rsqrt(squares * (1.0 / d) + EPSILON)[:, None]
    return [total * scale for total in totals]


def tile_indices():
    rows = pl.program_id(0) * BLOCK_M + jnp.arange(BLOCK_M)
    cols = pl.program_id(1) * BLOCK_N + jnp.arange(BLOCK_N)
    return rows[:, None], cols[None, :]


def projections_tile(x_ref, wq_ref, wk_ref, wv_ref, q_ref, k_ref, v_ref):
    rows, cols = tile_indices()
    tiles = normed_products(x_ref, (wq_ref, wk_ref, wv_ref), rows, cols)
    for ref, tile in zip((q_ref, k_ref, v_ref), tiles, strict=True):
        store_tile(ref, rows, cols, tile)


def attention_tile(x_ref, q_ref, k_ref, v_ref, wo_ref, o_ref):
    """A tile of x + attention @ wo; every tile of a row makes its attention anew, which is little work."""
    n, e = q_ref.shape
    rows, cols = tile_indices()
    es = jnp.arange(max(MIN_BLOCK_E, pl.next_power_of_2(e)))
    q = load_tile(q_ref, rows, es[None, :])

    def step(block, carry):
        row_max, row_sum, out = carry
        keys = block * BLOCK_N + jnp.arange(BLOCK_N)
        k_t = load_tile(k_ref, keys[None, :], es[:, None])
        v = load_tile(v_ref, keys[:, None], es[None, :])
        scores = jnp.where(keys[None, :] < n, jnp.dot(q, k_t) * (LOG2_E / math.sqrt(e)), -jnp.inf)
        new_max = jnp.maximum(row_max, jnp.max(scores, axis=1))
        p = jnp.exp2(scores - new_max[:, None])
        shrink = jnp.exp2(row_max - new_max)
        return new_max, row_sum * shrink + jnp.sum(p, axis=1), out * shrink[:, None] + jnp.dot(p, v)

    start = (
        jnp.full((BLOCK_M,), -jnp.inf, jnp.float32),
        jnp.zeros((BLOCK_M,), jnp.float32),
        jnp.zeros((BLOCK_M, es.shape[0]), jnp.float32),
    )
    _, row_sum, out = lax.fori_loop(0, pl.cdiv(n, BLOCK_N), step, start)
    projected = jnp.dot(out / row_sum[:, None], load_tile(wo_ref, es[:, None], cols))
    store_tile(o_ref, rows, cols, load_tile(x_ref, rows, cols) + projected)


def feed_forward_tile(h_ref, w_ff_ref, o_ref):
    rows, cols = tile_indices()
    (hidden,) = normed_products(h_ref, (w_ff_ref,), rows, cols)
    store_tile(o_ref, rows, cols, load_tile(h_ref, rows, cols) + jnp.maximum(hidden, 0.0))


def kernel(x, wq, wk, wv, wo, w_ff):
    n, d = x.shape
    e = wq.shape[1]
    wide = jax.ShapeDtypeStruct((n, d), x.dtype)
    narrow = jax.ShapeDtypeStruct((n, e), x.dtype)
    wide_grid = (pl.cdiv(n, BLOCK_M), pl.cdiv(d, BLOCK_N))
    narrow_grid = (pl.cdiv(n, BLOCK_M), pl.cdiv(e, BLOCK_N))
    params = plgpu.CompilerParams(num_warps=NUM_WARPS, num_stages=NUM_STAGES)

    def call(body, grid, out_shape):
        return pl.pallas_call(body, grid=grid, out_shape=out_shape, compiler_params=params)

    q, k, v = call(projections_tile, narrow_grid, (narrow, narrow, narrow))(x, wq, wk, wv)
    h = call(attention_tile, wide_grid, wide)(x, q, k, v, wo)
    return call(feed_forward_tile, wide_grid, wide)(h, w_ff)


# EVOLVE-BLOCK-END
