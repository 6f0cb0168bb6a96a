"""Matrix product of each pair in a batch.

    out[b, i, j] = sum_k x[b, i, k] y[b, k, j]

Inputs:
    x: (B, M, K) float32
    y: (B, K, N) float32
Returns:
    (B, M, N) float32, dot

One program a batch entry; both matrices whole.

Task: L1/batched_matmul. The TPU-sized original of that seed.
Origin: written for pallas_evo from the formula; the task is PallasBench's.
SPDX-License-Identifier: Apache-2.0
"""

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl

# EVOLVE-BLOCK-START


def matmul_entry(x_ref, y_ref, o_ref):
    o_ref[...] = jnp.dot(x_ref[...], y_ref[...], preferred_element_type=jnp.float32)


def kernel(x, y):
    batch, m, k = x.shape
    n = y.shape[2]
    return pl.pallas_call(
        matmul_entry,
        grid=(batch,),
        in_specs=[
            pl.BlockSpec((None, m, k), lambda b: (b, 0, 0)),
            pl.BlockSpec((None, k, n), lambda b: (b, 0, 0)),
        ],
        out_specs=pl.BlockSpec((None, m, n), lambda b: (b, 0, 0)),
        out_shape=jax.ShapeDtypeStruct((batch, m, n), x.dtype),
    )(x, y)


# EVOLVE-BLOCK-END
