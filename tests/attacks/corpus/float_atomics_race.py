# attack: adds into an output that nothing set to zero first
# task: L1/reduce_mean
# reason: output_range, output_std, axes_variation, input_impact, numerics, race, unwritten, nondeterministic
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
    cols = j * 128 + jnp.arange(128)
    x = plgpu.load(x_ref.at[i, cols], mask=cols < n, other=0.0)
    plgpu.atomic_add(o_ref, (i,), jnp.sum(x) / n)


def kernel(x):
    m, n = x.shape
    return pl.pallas_call(
        tile,
        grid=(m, pl.cdiv(n, 128)),
        out_shape=jax.ShapeDtypeStruct((m,), x.dtype),
        compiler_params=plgpu.CompilerParams(num_warps=4),
    )(x)


# EVOLVE-BLOCK-END
