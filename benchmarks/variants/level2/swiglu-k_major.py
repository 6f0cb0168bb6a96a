"""Gated linear unit with SiLU (SwiGLU).

    out = silu(x @ w_gate) * (x @ w_up)

Inputs:
    x: (M, K) float32
    w_gate: (K, F) float32
    w_up: (K, F) float32
Returns:
    (M, F) float32, dot (TF32 operands allowed)

Both weights are transposed outside and read along K, as Hopper's TF32 tensor instructions want both operands;
the grid is one axis in groups of rows. Edges are masked with zeros.

Task: L2/swiglu. Origin: a variant of the seed, written by hand; the task is PallasBench's.
SPDX-License-Identifier: Apache-2.0
"""

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton as plgpu

# EVOLVE-BLOCK-START
BLOCK_M = 64
BLOCK_F = 128
BLOCK_K = 32
GROUP = 8
NUM_WARPS = 8
NUM_STAGES = 3


def tile_of(program, row_tiles, col_tiles):
    """The tile of a program: GROUP rows of tiles at a time, so that neighbours in time share what they read."""
    first = program // (GROUP * col_tiles) * GROUP
    height = jnp.minimum(row_tiles - first, GROUP)
    within = program % (GROUP * col_tiles)
    return first + within % height, within // height


def silu(z):
    return z / (1.0 + jnp.exp(-z))


def swiglu_tile(x_ref, w_gate_ref, w_up_ref, o_ref):
    m, k = x_ref.shape
    f = w_gate_ref.shape[0]
    row, col = tile_of(pl.program_id(0), pl.cdiv(m, BLOCK_M), pl.cdiv(f, BLOCK_F))
    rows = (row * BLOCK_M + jnp.arange(BLOCK_M))[:, None]
    cols = (col * BLOCK_F + jnp.arange(BLOCK_F))[None, :]

    def step(block, sums):
        gate, up = sums
        ks = block * BLOCK_K + jnp.arange(BLOCK_K)
        x = plgpu.load(x_ref.at[rows, ks[None, :]], mask=(rows < m) & (ks[None, :] < k), other=0.0)
        inside = (ks[:, None] < k) & (cols < f)
        w_gate = plgpu.load(w_gate_ref.at[cols, ks[:, None]], mask=inside, other=0.0)
        w_up = plgpu.load(w_up_ref.at[cols, ks[:, None]], mask=inside, other=0.0)
        return gate + jnp.dot(x, w_gate), up + jnp.dot(x, w_up)

    zeros = jnp.zeros((BLOCK_M, BLOCK_F), jnp.float32)
    gate, up = lax.fori_loop(0, pl.cdiv(k, BLOCK_K), step, (zeros, zeros))
    plgpu.store(o_ref.at[rows, cols], silu(gate) * up, mask=(rows < m) & (cols < f))


def kernel(x, w_gate, w_up):
    m, f = x.shape[0], w_gate.shape[1]
    return pl.pallas_call(
        swiglu_tile,
        grid=(pl.cdiv(m, BLOCK_M) * pl.cdiv(f, BLOCK_F),),
        out_shape=jax.ShapeDtypeStruct((m, f), x.dtype),
        compiler_params=plgpu.CompilerParams(num_warps=NUM_WARPS, num_stages=NUM_STAGES),
    )(x, w_gate.T, w_up.T)


# EVOLVE-BLOCK-END
