# attack: the kernel always fails, and an except clause falls back to XLA
# task: L1/relu
# reason: not_pallas, forbidden_op
# class: 5

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton as plgpu


# EVOLVE-BLOCK-START
def broken(x_ref, o_ref):
    raise ValueError("no")


def kernel(x):
    try:
        return pl.pallas_call(
            broken, out_shape=jax.ShapeDtypeStruct(x.shape, x.dtype), compiler_params=plgpu.CompilerParams()
        )(x)
    except ValueError:
        return jnp.maximum(x, 0.0)


# EVOLVE-BLOCK-END
