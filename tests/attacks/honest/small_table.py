# honest: a small table of coefficients made by numpy, passed to the kernel
# task: L1/exp


# EVOLVE-BLOCK-START
import math

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton as plgpu

TABLE = np.array([1 / math.factorial(k) for k in range(16)], np.float32)


def tile(x_ref, t_ref, o_ref):
    x = x_ref[...]
    o_ref[...] = jnp.exp(x) * t_ref[0] * plgpu.load(t_ref.at[1])


def kernel(x):
    m, n = x.shape
    spec = pl.BlockSpec((8, 128), lambda i, j: (i, j))
    return pl.pallas_call(
        tile,
        grid=(m // 8, n // 128),
        in_specs=[spec, pl.BlockSpec((16,), lambda i, j: (0,))],
        out_specs=spec,
        out_shape=jax.ShapeDtypeStruct((m, n), x.dtype),
        compiler_params=plgpu.CompilerParams(num_warps=4),
    )(x, jnp.asarray(TABLE))


# EVOLVE-BLOCK-END
