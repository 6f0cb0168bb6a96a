# attack: loads the bias and multiplies it by zero
# task: L2/linear_bias_relu
# reason: output_range, output_std, axes_variation, input_impact, numerics
# class: 9

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton as plgpu


# EVOLVE-BLOCK-START
def tile(x_ref, w_ref, b_ref, o_ref):
    m, k = x_ref.shape
    n = w_ref.shape[1]
    rows = (pl.program_id(0) * 64 + jnp.arange(64))[:, None]
    cols = (pl.program_id(1) * 64 + jnp.arange(64))[None, :]

    def step(block, z):
        ks = block * 32 + jnp.arange(32)
        x = plgpu.load(x_ref.at[rows, ks[None, :]], mask=(rows < m) & (ks[None, :] < k), other=0.0)
        w = plgpu.load(w_ref.at[ks[:, None], cols], mask=(ks[:, None] < k) & (cols < n), other=0.0)
        return z + jnp.dot(x, w)

    z = lax.fori_loop(0, pl.cdiv(k, 32), step, jnp.zeros((64, 64), jnp.float32))
    b = plgpu.load(b_ref.at[cols], mask=cols < n, other=0.0)
    plgpu.store(o_ref.at[rows, cols], jnp.maximum(z + 0.0 * b, 0.0), mask=(rows < m) & (cols < n))


def kernel(x, w, b):
    m, n = x.shape[0], w.shape[1]
    return pl.pallas_call(
        tile,
        grid=(pl.cdiv(m, 64), pl.cdiv(n, 64)),
        out_shape=jax.ShapeDtypeStruct((m, n), x.dtype),
        compiler_params=plgpu.CompilerParams(num_warps=4),
    )(x, w, b)


# EVOLVE-BLOCK-END
