"""Linear layer with bias, then ReLU.

    out[i, j] = max(sum_k x[i, k] w[k, j] + b[j], 0)

Inputs:
    x: (M, K) float32
    w: (K, N) float32
    b: (N,) float32
Returns:
    (M, N) float32, dot

Whole-K blocks: 512 rows of the first operand times 512 columns of the second, one product a program.

Task: L2/linear_bias_relu. The TPU-sized original of that seed.
Origin: written for pallas_evo from the formula; the task is PallasBench's.
SPDX-License-Identifier: Apache-2.0
"""

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl

# EVOLVE-BLOCK-START
BLOCK_M = 512
BLOCK_N = 512


def linear_bias_relu_block(x_ref, w_ref, b_ref, o_ref):
    z = jnp.dot(x_ref[...], w_ref[...], preferred_element_type=jnp.float32)
    o_ref[...] = jnp.maximum(z + b_ref[...], 0.0)


def kernel(x, w, b):
    m, k = x.shape
    n = w.shape[1]
    block_m, block_n = min(BLOCK_M, m), min(BLOCK_N, n)
    return pl.pallas_call(
        linear_bias_relu_block,
        grid=(pl.cdiv(m, block_m), pl.cdiv(n, block_n)),
        in_specs=[
            pl.BlockSpec((block_m, k), lambda i, j: (i, 0)),
            pl.BlockSpec((k, block_n), lambda i, j: (0, j)),
            pl.BlockSpec((1, block_n), lambda i, j: (0, j)),
        ],
        out_specs=pl.BlockSpec((block_m, block_n), lambda i, j: (i, j)),
        out_shape=jax.ShapeDtypeStruct((m, n), x.dtype),
    )(x, w, b.reshape(1, n))


# EVOLVE-BLOCK-END
