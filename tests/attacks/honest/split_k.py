# honest: K in two halves, each into a part of its own, which a second kernel adds
# task: L1/matmul

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton as plgpu


# EVOLVE-BLOCK-START
def part(x_ref, y_ref, a_ref, b_ref):
    m, k = x_ref.shape
    n = y_ref.shape[1]
    rows = (pl.program_id(0) * 32 + jnp.arange(32))[:, None]
    cols = (pl.program_id(1) * 32 + jnp.arange(32))[None, :]
    inside = (rows < m) & (cols < n)

    def half(low, high):
        def step(block, total):
            ks = low + block * 32 + jnp.arange(32)
            x = plgpu.load(x_ref.at[rows, ks[None, :]], mask=(rows < m) & (ks[None, :] < high), other=0.0)
            y = plgpu.load(y_ref.at[ks[:, None], cols], mask=(ks[:, None] < high) & (cols < n), other=0.0)
            return total + jnp.dot(x, y)

        return lax.fori_loop(0, pl.cdiv(high - low, 32), step, jnp.zeros((32, 32), jnp.float32))

    plgpu.store(a_ref.at[rows, cols], half(0, k // 2), mask=inside)
    plgpu.store(b_ref.at[rows, cols], half(k // 2, k), mask=inside)


def add(a_ref, b_ref, o_ref):
    o_ref[...] = a_ref[...] + b_ref[...]


def kernel(x, y):
    m, n = x.shape[0], y.shape[1]
    params = plgpu.CompilerParams(num_warps=4)
    shape = jax.ShapeDtypeStruct((m, n), x.dtype)
    a, b = pl.pallas_call(
        part, grid=(pl.cdiv(m, 32), pl.cdiv(n, 32)), out_shape=(shape, shape), compiler_params=params
    )(x, y)
    spec = pl.BlockSpec((8, 64), lambda i, j: (i, j))
    return pl.pallas_call(
        add, grid=(m // 8, n // 64), in_specs=[spec, spec], out_specs=spec, out_shape=shape, compiler_params=params
    )(a, b)


# EVOLVE-BLOCK-END
