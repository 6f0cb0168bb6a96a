"""Gated feed-forward layer.

    out = (silu(x @ w_gate) * (x @ w_up)) @ w_down

Inputs:
    x: (M, D) float32
    w_gate: (D, F) float32
    w_up: (D, F) float32
    w_down: (F, D) float32
Returns:
    (M, D) float32, dot (TF32 operands allowed)

Two kernels in a row, as in the seed, each with tiles and stages of its own: many stages, because few programs run at
once, and a narrow tile in the second, so that there are more of them. Edges are masked with zeros.

Task: L3/gated_mlp. Origin: a variant of the seed, written by hand; the task is PallasBench's.
SPDX-License-Identifier: Apache-2.0
"""

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton as plgpu

# EVOLVE-BLOCK-START
BLOCK_M = 32
BLOCK_N = 64
BLOCK_K = 32
NUM_STAGES = 5
BLOCK_N_DOWN = 32
BLOCK_K_DOWN = 64
NUM_STAGES_DOWN = 4
NUM_WARPS = 4


def silu(z):
    return z / (1.0 + jnp.exp(-z))


def tile_indices(block_n):
    rows = pl.program_id(0) * BLOCK_M + jnp.arange(BLOCK_M)
    cols = pl.program_id(1) * block_n + jnp.arange(block_n)
    return rows[:, None], cols[None, :]


def load_tile(ref, rows, cols):
    inside = (rows < ref.shape[0]) & (cols < ref.shape[1])
    return plgpu.load(ref.at[rows, cols], mask=inside, other=0.0)


def store_tile(ref, rows, cols, value):
    plgpu.store(ref.at[rows, cols], value, mask=(rows < ref.shape[0]) & (cols < ref.shape[1]))


def hidden_tile(x_ref, w_gate_ref, w_up_ref, o_ref):
    rows, cols = tile_indices(BLOCK_N)

    def step(block, sums):
        gate, up = sums
        ks = block * BLOCK_K + jnp.arange(BLOCK_K)
        x = load_tile(x_ref, rows, ks[None, :])
        w_gate = load_tile(w_gate_ref, ks[:, None], cols)
        w_up = load_tile(w_up_ref, ks[:, None], cols)
        return gate + jnp.dot(x, w_gate), up + jnp.dot(x, w_up)

    zeros = jnp.zeros((BLOCK_M, BLOCK_N), jnp.float32)
    gate, up = lax.fori_loop(0, pl.cdiv(x_ref.shape[1], BLOCK_K), step, (zeros, zeros))
    store_tile(o_ref, rows, cols, silu(gate) * up)


def down_tile(hidden_ref, w_down_ref, o_ref):
    rows, cols = tile_indices(BLOCK_N_DOWN)

    def step(block, total):
        ks = block * BLOCK_K_DOWN + jnp.arange(BLOCK_K_DOWN)
        return total + jnp.dot(load_tile(hidden_ref, rows, ks[None, :]), load_tile(w_down_ref, ks[:, None], cols))

    zeros = jnp.zeros((BLOCK_M, BLOCK_N_DOWN), jnp.float32)
    total = lax.fori_loop(0, pl.cdiv(hidden_ref.shape[1], BLOCK_K_DOWN), step, zeros)
    store_tile(o_ref, rows, cols, total)


def tiled_call(body, shape, dtype, block_n, num_stages):
    return pl.pallas_call(
        body,
        grid=(pl.cdiv(shape[0], BLOCK_M), pl.cdiv(shape[1], block_n)),
        out_shape=jax.ShapeDtypeStruct(shape, dtype),
        compiler_params=plgpu.CompilerParams(num_warps=NUM_WARPS, num_stages=num_stages),
    )


def kernel(x, w_gate, w_up, w_down):
    m, d = x.shape
    hidden = tiled_call(hidden_tile, (m, w_gate.shape[1]), x.dtype, BLOCK_N, NUM_STAGES)(x, w_gate, w_up)
    return tiled_call(down_tile, (m, d), x.dtype, BLOCK_N_DOWN, NUM_STAGES_DOWN)(hidden, w_down)


# EVOLVE-BLOCK-END
