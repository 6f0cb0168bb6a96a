"""Batched matrix product.

    out[b, i, j] = sum_k x[b, i, k] y[b, k, j]

Inputs:
    x: (B, M, K) float32
    y: (B, K, N) float32
Returns:
    (B, M, N) float32, dot (TF32 operands allowed)

The second operand is transposed outside and read along K, as Hopper's TF32 tensor instructions want both operands.
Edges are masked with zeros.

Task: L1/batched_matmul. Origin: a variant of the seed, written by hand; the task is PallasBench's.
SPDX-License-Identifier: Apache-2.0
"""

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton as plgpu

# EVOLVE-BLOCK-START
BLOCK_M = 64
BLOCK_N = 64
BLOCK_K = 32
NUM_WARPS = 4
NUM_STAGES = 4


def batched_matmul_tile(x_ref, y_ref, o_ref):
    m, k = x_ref.shape[1:]
    n = o_ref.shape[2]
    batch = pl.program_id(2)
    rows = (pl.program_id(0) * BLOCK_M + jnp.arange(BLOCK_M))[:, None]
    cols = (pl.program_id(1) * BLOCK_N + jnp.arange(BLOCK_N))[None, :]

    def step(block, total):
        ks = block * BLOCK_K + jnp.arange(BLOCK_K)
        x = plgpu.load(x_ref.at[batch, rows, ks[None, :]], mask=(rows < m) & (ks[None, :] < k), other=0.0)
        y = plgpu.load(y_ref.at[batch, cols, ks[:, None]], mask=(ks[:, None] < k) & (cols < n), other=0.0)
        return total + jnp.dot(x, y)

    total = lax.fori_loop(0, pl.cdiv(k, BLOCK_K), step, jnp.zeros((BLOCK_M, BLOCK_N), jnp.float32))
    plgpu.store(o_ref.at[batch, rows, cols], total, mask=(rows < m) & (cols < n))


def kernel(x, y):
    b, m, _ = x.shape
    n = y.shape[2]
    return pl.pallas_call(
        batched_matmul_tile,
        grid=(pl.cdiv(m, BLOCK_M), pl.cdiv(n, BLOCK_N), b),
        out_shape=jax.ShapeDtypeStruct((b, m, n), x.dtype),
        compiler_params=plgpu.CompilerParams(num_warps=NUM_WARPS, num_stages=NUM_STAGES),
    )(x, jnp.swapaxes(y, 1, 2))


# EVOLVE-BLOCK-END
