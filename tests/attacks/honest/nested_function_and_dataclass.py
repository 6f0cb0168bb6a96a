# honest: builds its body in a function from a frozen dataclass of settings
# task: L1/relu


# EVOLVE-BLOCK-START
import dataclasses
import typing

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton as plgpu


@dataclasses.dataclass(frozen=True)
class Settings:
    """Tile sizes."""

    rows: int = 8
    cols: int = 128
    warps: typing.Literal[1, 2, 4, 8] = 4


def make(settings: Settings) -> typing.Callable[..., None]:
    def tile(x_ref, o_ref):
        m, n = x_ref.shape
        rows = (pl.program_id(0) * settings.rows + jnp.arange(settings.rows))[:, None]
        cols = (pl.program_id(1) * settings.cols + jnp.arange(settings.cols))[None, :]
        inside = (rows < m) & (cols < n)
        x = plgpu.load(x_ref.at[rows, cols], mask=inside, other=0.0)
        plgpu.store(o_ref.at[rows, cols], jnp.maximum(x, 0.0), mask=inside)

    return tile


def kernel(x):
    settings = Settings()
    m, n = x.shape
    return pl.pallas_call(
        make(settings),
        grid=(pl.cdiv(m, settings.rows), pl.cdiv(n, settings.cols)),
        out_shape=jax.ShapeDtypeStruct((m, n), x.dtype),
        compiler_params=plgpu.CompilerParams(num_warps=settings.warps),
    )(x)


# EVOLVE-BLOCK-END
