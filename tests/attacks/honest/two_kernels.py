# honest: two kernels in a row, the second on the first one's result
# task: L1/softmax

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton as plgpu


# EVOLVE-BLOCK-START
def maxima(x_ref, o_ref):
    n = x_ref.shape[1]
    i = pl.program_id(0)
    cols = jnp.arange(pl.next_power_of_2(n))
    o_ref[i] = jnp.max(plgpu.load(x_ref.at[i, cols], mask=cols < n, other=-jnp.inf))


def normalise(x_ref, m_ref, o_ref):
    n = x_ref.shape[1]
    i = pl.program_id(0)
    cols = jnp.arange(pl.next_power_of_2(n))
    x = plgpu.load(x_ref.at[i, cols], mask=cols < n, other=-jnp.inf)
    w = jnp.exp(x - m_ref[i])
    plgpu.store(o_ref.at[i, cols], w / jnp.sum(w), mask=cols < n)


def kernel(x):
    m, n = x.shape
    params = plgpu.CompilerParams(num_warps=4)
    top = pl.pallas_call(maxima, grid=(m,), out_shape=jax.ShapeDtypeStruct((m,), x.dtype), compiler_params=params)(x)
    return pl.pallas_call(
        normalise, grid=(m,), out_shape=jax.ShapeDtypeStruct((m, n), x.dtype), compiler_params=params
    )(x, top)


# EVOLVE-BLOCK-END
