# attack: rounds both operands to bfloat16
# task: L1/matmul
# reason: numerics, output_range, output_std, axes_variation, input_impact
# class: 43

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton as plgpu


# EVOLVE-BLOCK-START
def tile(x_ref, y_ref, o_ref):
    m, k = x_ref.shape
    n = y_ref.shape[1]
    rows = (pl.program_id(0) * 64 + jnp.arange(64))[:, None]
    cols = (pl.program_id(1) * 64 + jnp.arange(64))[None, :]

    def step(block, total):
        ks = block * 32 + jnp.arange(32)
        x = plgpu.load(x_ref.at[rows, ks[None, :]], mask=(rows < m) & (ks[None, :] < k), other=0.0)
        y = plgpu.load(y_ref.at[ks[:, None], cols], mask=(ks[:, None] < k) & (cols < n), other=0.0)
        return total + jnp.dot(x.astype(jnp.bfloat16), y.astype(jnp.bfloat16)).astype(jnp.float32)

    total = lax.fori_loop(0, pl.cdiv(k, 32), step, jnp.zeros((64, 64), jnp.float32))
    plgpu.store(o_ref.at[rows, cols], total, mask=(rows < m) & (cols < n))


def kernel(x, y):
    m, n = x.shape[0], y.shape[1]

    out = pl.pallas_call(
        tile,
        grid=(pl.cdiv(m, 64), pl.cdiv(n, 64)),
        out_shape=jax.ShapeDtypeStruct((m, n), jnp.float32),
        compiler_params=plgpu.CompilerParams(num_warps=4, num_stages=1),
    )(x, y)
    return out


# EVOLVE-BLOCK-END
