"""Triangle update of a masked pair representation.

    p = pair * mask[:, :, None]
    out[i, j, c] = pair[i, j, c] + sum_k p[i, k, c] p[k, j, c]

Inputs:
    pair: (N, N, C) float32
    mask: (N, N) float32, 0 or 1
Returns:
    (N, N, C) float32, dot

Channels first, so that each of the C programs is one whole (N, N) matrix product.

Task: L3/triangle_update. The TPU-sized original of that seed.
Origin: written for pallas_evo from the formula; the task is PallasBench's.
SPDX-License-Identifier: Apache-2.0
"""

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl

# EVOLVE-BLOCK-START


def update_channel(pair_ref, mask_ref, o_ref):
    pair = pair_ref[...]
    p = pair * mask_ref[...]
    o_ref[...] = pair + jnp.dot(p, p, preferred_element_type=jnp.float32)


def kernel(pair, mask):
    n, _, c = pair.shape
    channel = pl.BlockSpec((None, n, n), lambda i: (i, 0, 0))
    out = pl.pallas_call(
        update_channel,
        grid=(c,),
        in_specs=[channel, pl.BlockSpec((n, n), lambda i: (0, 0))],
        out_specs=channel,
        out_shape=jax.ShapeDtypeStruct((c, n, n), pair.dtype),
    )(pair.transpose(2, 0, 1), mask)
    return out.transpose(1, 2, 0)


# EVOLVE-BLOCK-END
