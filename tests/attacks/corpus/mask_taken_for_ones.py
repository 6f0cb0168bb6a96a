# attack: takes the mask for all ones
# task: L3/triangle_update
# reason: numerics, output_range, output_std, axes_variation, input_impact, numerics
# class: 13

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton as plgpu


# EVOLVE-BLOCK-START
def tile(p_ref, m_ref, o_ref):
    n, c = p_ref.shape[0], p_ref.shape[2]
    i, j = pl.program_id(0), pl.program_id(1)
    cs = jnp.arange(pl.next_power_of_2(c))
    inside = cs < c

    def step(k, total):
        a = plgpu.load(p_ref.at[i, k, cs], mask=inside, other=0.0)
        b = plgpu.load(p_ref.at[k, j, cs], mask=inside, other=0.0)
        one = plgpu.load(m_ref.at[i, k]) * 0.0 + 1.0
        return total + a * b * one

    total = lax.fori_loop(0, n, step, plgpu.load(p_ref.at[i, j, cs], mask=inside, other=0.0))
    plgpu.store(o_ref.at[i, j, cs], total, mask=inside)


def kernel(pair, mask):
    n, _, c = pair.shape
    return pl.pallas_call(
        tile,
        grid=(n, n),
        out_shape=jax.ShapeDtypeStruct(pair.shape, pair.dtype),
        compiler_params=plgpu.CompilerParams(num_warps=1),
    )(pair, mask)


# EVOLVE-BLOCK-END
