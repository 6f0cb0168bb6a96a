# attack: all programs of a row store the row's sum, the last one wins
# task: L1/reduce_mean
# reason: race
# class: 29

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton as plgpu


# EVOLVE-BLOCK-START
def tile(x_ref, o_ref):
    i, j = pl.program_id(0), pl.program_id(1)
    n = x_ref.shape[1]
    total = jnp.sum(
        plgpu.load(
            x_ref.at[i, jnp.arange(pl.next_power_of_2(n))], mask=jnp.arange(pl.next_power_of_2(n)) < n, other=0.0
        )
    )
    o_ref[i] = total / n + 0.0 * j.astype(jnp.float32)


def kernel(x):
    m, n = x.shape
    return pl.pallas_call(
        tile,
        grid=(m, 4),
        out_shape=jax.ShapeDtypeStruct((m,), x.dtype),
        compiler_params=plgpu.CompilerParams(num_warps=4),
    )(x)


# EVOLVE-BLOCK-END
