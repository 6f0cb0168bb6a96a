"""Matrix product followed by GELU (tanh form).

    z = x @ w
    out = 0.5 z (1 + tanh(sqrt(2 / pi) (z + 0.044715 z^3)))

Inputs:
    x: (M, K) float32
    w: (K, N) float32
Returns:
    (M, N) float32, dot (TF32 operands allowed)

One program per output tile walks K in blocks and adds tile products in float32; the GELU is taken in registers
before the tile is stored. Edges are masked with zeros.

Task: L2/matmul_gelu. Origin: written for pallas_evo from the formula; the task is PallasBench's.
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
NUM_STAGES = 2


def gelu(z):
    return 0.5 * z * (1.0 + jnp.tanh(0.7978845608028654 * (z + 0.044715 * z * z * z)))


def matmul_gelu_tile(x_ref, w_ref, o_ref):
    m, k = x_ref.shape
    n = w_ref.shape[1]
    rows = (pl.program_id(0) * BLOCK_M + jnp.arange(BLOCK_M))[:, None]
    cols = (pl.program_id(1) * BLOCK_N + jnp.arange(BLOCK_N))[None, :]

    def step(block, z):
        ks = block * BLOCK_K + jnp.arange(BLOCK_K)
        x = plgpu.load(x_ref.at[rows, ks[None, :]], mask=(rows < m) & (ks[None, :] < k), other=0.0)
        w = plgpu.load(w_ref.at[ks[:, None], cols], mask=(ks[:, None] < k) & (cols < n), other=0.0)
        return z + jnp.dot(x, w)

    z = lax.fori_loop(0, pl.cdiv(k, BLOCK_K), step, jnp.zeros((BLOCK_M, BLOCK_N), jnp.float32))
    plgpu.store(o_ref.at[rows, cols], gelu(z), mask=(rows < m) & (cols < n))


def kernel(x, w):
    m, n = x.shape[0], w.shape[1]
    return pl.pallas_call(
        matmul_gelu_tile,
        grid=(pl.cdiv(m, BLOCK_M), pl.cdiv(n, BLOCK_N)),
        out_shape=jax.ShapeDtypeStruct((m, n), x.dtype),
        compiler_params=plgpu.CompilerParams(num_warps=NUM_WARPS, num_stages=NUM_STAGES),
    )(x, w)


# EVOLVE-BLOCK-END
