"""Matrix product, then GELU (tanh approximation).

    out = 0.5 z (1 + tanh(sqrt(2 / pi) (z + 0.044715 z^3))),   z = x @ w

Inputs:
    x: (M, K) float32
    w: (K, N) float32
Returns:
    (M, N) float32, dot

Whole-K blocks: 512 rows of the first operand times 512 columns of the second, one product a program.

Task: L2/matmul_gelu. The TPU-sized original of that seed.
Origin: written for pallas_evo from the formula; the task is PallasBench's.
SPDX-License-Identifier: Apache-2.0
"""

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl

# EVOLVE-BLOCK-START
BLOCK_M = 512
BLOCK_N = 512


def matmul_gelu_block(x_ref, w_ref, o_ref):
    z = jnp.dot(x_ref[...], w_ref[...], preferred_element_type=jnp.float32)
    o_ref[...] = 0.5 * z * (1.0 + jnp.tanh(0.7978845608028654 * (z + 0.044715 * z * z * z)))


def kernel(x, w):
    m, k = x.shape
    n = w.shape[1]
    block_m, block_n = min(BLOCK_M, m), min(BLOCK_N, n)
    return pl.pallas_call(
        matmul_gelu_block,
        grid=(pl.cdiv(m, block_m), pl.cdiv(n, block_n)),
        in_specs=[
            pl.BlockSpec((block_m, k), lambda i, j: (i, 0)),
            pl.BlockSpec((k, block_n), lambda i, j: (0, j)),
        ],
        out_specs=pl.BlockSpec((block_m, block_n), lambda i, j: (i, j)),
        out_shape=jax.ShapeDtypeStruct((m, n), x.dtype),
    )(x, w)


# EVOLVE-BLOCK-END
