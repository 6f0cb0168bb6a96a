"""Matrix product.

    out[i, j] = sum_k x[i, k] y[k, j]

Inputs:
    x: (M, K) float32
    y: (K, N) float32
Returns:
    (M, N) float32, dot (TF32 operands allowed)

The second operand is transposed outside and read along K, as Hopper's TF32 tensor instructions want both operands;
the grid is one axis in groups of rows. Edges are masked with zeros.

Task: L1/matmul. Origin: a variant of the seed, written by hand; the task is PallasBench's.
SPDX-License-Identifier: Apache-2.0
"""

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton as plgpu

# EVOLVE-BLOCK-START
BLOCK_M = 64
BLOCK_N = 128
BLOCK_K = 32
GROUP = 8
NUM_WARPS = 4
NUM_STAGES = 4


def tile_of(program, row_tiles, col_tiles):
    """The tile of a program: GROUP rows of tiles at a time, so that neighbours in time share what they read."""
    first = program // (GROUP * col_tiles) * GROUP
    height = jnp.minimum(row_tiles - first, GROUP)
    within = program % (GROUP * col_tiles)
    return first + within % height, within // height


def matmul_tile(x_ref, y_ref, o_ref):
    m, k = x_ref.shape
    n = y_ref.shape[0]
    row, col = tile_of(pl.program_id(0), pl.cdiv(m, BLOCK_M), pl.cdiv(n, BLOCK_N))
    rows = (row * BLOCK_M + jnp.arange(BLOCK_M))[:, None]
    cols = (col * BLOCK_N + jnp.arange(BLOCK_N))[None, :]

    def step(block, total):
        ks = block * BLOCK_K + jnp.arange(BLOCK_K)
        x = plgpu.load(x_ref.at[rows, ks[None, :]], mask=(rows < m) & (ks[None, :] < k), other=0.0)
        y = plgpu.load(y_ref.at[cols, ks[:, None]], mask=(ks[:, None] < k) & (cols < n), other=0.0)
        return total + jnp.dot(x, y)

    total = lax.fori_loop(0, pl.cdiv(k, BLOCK_K), step, jnp.zeros((BLOCK_M, BLOCK_N), jnp.float32))
    plgpu.store(o_ref.at[rows, cols], total, mask=(rows < m) & (cols < n))


def kernel(x, y):
    m, n = x.shape[0], y.shape[1]
    return pl.pallas_call(
        matmul_tile,
        grid=(pl.cdiv(m, BLOCK_M) * pl.cdiv(n, BLOCK_N),),
        out_shape=jax.ShapeDtypeStruct((m, n), x.dtype),
        compiler_params=plgpu.CompilerParams(num_warps=NUM_WARPS, num_stages=NUM_STAGES),
    )(x, y.T)


# EVOLVE-BLOCK-END
