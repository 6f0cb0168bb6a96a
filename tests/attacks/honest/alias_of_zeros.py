# honest: accumulates into zeros made inside, which its output aliases
# task: L1/reduce_mean

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton as plgpu


# EVOLVE-BLOCK-START
def tile(x_ref, zeros_ref, o_ref):
    _m, n = x_ref.shape
    i = pl.program_id(0)
    cols = jnp.arange(pl.next_power_of_2(n))
    x = plgpu.load(x_ref.at[i, cols], mask=cols < n, other=0.0)
    o_ref[i] = o_ref[i] + jnp.sum(x) / n


def kernel(x):
    m, _n = x.shape
    return pl.pallas_call(
        tile,
        grid=(m,),
        out_shape=jax.ShapeDtypeStruct((m,), x.dtype),
        input_output_aliases={1: 0},
        compiler_params=plgpu.CompilerParams(num_warps=4),
    )(x, jnp.zeros((m,), x.dtype))


# EVOLVE-BLOCK-END
