"""Matrix product.

    out[i, j] = sum_k x[i, k] y[k, j]

Inputs:
    x: (M, K) float32
    y: (K, N) float32
Returns:
    (M, N) float32, dot

Whole-K blocks: 512 rows of the first operand times 512 columns of the second, one product a program.

Task: L1/matmul. The TPU-sized original of that seed.
Origin: written for pallas_evo from the formula; the task is PallasBench's.
SPDX-License-Identifier: Apache-2.0
"""

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl

# EVOLVE-BLOCK-START
BLOCK_M = 512
BLOCK_N = 512


def matmul_block(x_ref, y_ref, o_ref):
    o_ref[...] = jnp.dot(x_ref[...], y_ref[...], preferred_element_type=jnp.float32)


def kernel(x, y):
    m, k = x.shape
    n = y.shape[1]
    block_m, block_n = min(BLOCK_M, m), min(BLOCK_N, n)
    return pl.pallas_call(
        matmul_block,
        grid=(pl.cdiv(m, block_m), pl.cdiv(n, block_n)),
        in_specs=[
            pl.BlockSpec((block_m, k), lambda i, j: (i, 0)),
            pl.BlockSpec((k, block_n), lambda i, j: (0, j)),
        ],
        out_specs=pl.BlockSpec((block_m, block_n), lambda i, j: (i, j)),
        out_shape=jax.ShapeDtypeStruct((m, n), x.dtype),
    )(x, y)


# EVOLVE-BLOCK-END
