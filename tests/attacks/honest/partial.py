# honest: its body takes its block size through functools.partial
# task: L1/relu


# EVOLVE-BLOCK-START
import functools

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton as plgpu


def tile(x_ref, o_ref, *, rows_at_once, low):
    m, n = x_ref.shape
    rows = (pl.program_id(0) * rows_at_once + jnp.arange(rows_at_once))[:, None]
    cols = jnp.arange(pl.next_power_of_2(n))[None, :]
    inside = (rows < m) & (cols < n)
    plgpu.store(
        o_ref.at[rows, cols], jnp.maximum(plgpu.load(x_ref.at[rows, cols], mask=inside, other=low), low), mask=inside
    )


def kernel(x):
    m, n = x.shape
    return pl.pallas_call(
        functools.partial(tile, rows_at_once=2, low=0.0),
        grid=(pl.cdiv(m, 2),),
        out_shape=jax.ShapeDtypeStruct((m, n), x.dtype),
        compiler_params=plgpu.CompilerParams(num_warps=4),
    )(x)


# EVOLVE-BLOCK-END
