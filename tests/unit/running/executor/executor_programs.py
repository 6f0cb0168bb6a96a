"""Lowers small Pallas programs for a GPU that is not there, and runs them in the executor."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import export
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton as plgpu
from jax.sharding import AbstractDevice, AbstractMesh, AxisType

from pallas_evo.running.executor import Executed, execute
from pallas_evo.types import ArraySpec, Rejection

CALL = getattr(plgpu, "CUSTOM_CALL_TARGET_NAME", "__gpu$xla.gpu.triton")


def lower(function: Callable[..., Any], *inputs: np.ndarray, device: str = "NVIDIA A100 80GB PCIe") -> str:
    """StableHLO text of a program, with the Triton IR inside."""
    mesh = AbstractMesh(
        (1,),
        ("x",),
        axis_types=(AxisType.Auto,),
        abstract_device=AbstractDevice(device_kind=device, platform="gpu", num_cores=None),
    )
    with jax.sharding.use_abstract_mesh(mesh):
        exported = export.export(
            jax.jit(function),
            platforms=["cuda"],
            disabled_checks=[export.DisabledSafetyCheck.custom_call(CALL)],
        )(*(jax.ShapeDtypeStruct(array.shape, array.dtype) for array in inputs))
    return exported.mlir_module()


def run(function: Callable[..., Any], *inputs: np.ndarray, lane_elements: int = 1 << 22) -> Executed | Rejection:
    """Lower a program and run it."""
    out = jax.eval_shape(function, *inputs)
    spec = ArraySpec(shape=tuple(out.shape), dtype=np.dtype(out.dtype).name)
    return execute(lower(function, *inputs), inputs, spec, lane_elements=lane_elements)


def output(function: Callable[..., Any], *inputs: np.ndarray, lane_elements: int = 1 << 22) -> np.ndarray:
    """The output of a program that must run without a fault."""
    done = run(function, *inputs, lane_elements=lane_elements)
    assert isinstance(done, Executed), done
    return done.output


def refusal(function: Callable[..., Any], *inputs: np.ndarray) -> Rejection:
    """Why a program that must be refused is."""
    done = run(function, *inputs)
    assert isinstance(done, Rejection), "the program ran without a fault"
    return done


def call(
    body: Callable[..., None], *inputs: Any, shape: tuple[int, ...], dtype: Any = jnp.float32, **keywords: Any
) -> Any:
    """`pl.pallas_call` with whole arrays as blocks and one output."""
    return pl.pallas_call(
        body,
        out_shape=jax.ShapeDtypeStruct(shape, dtype),
        compiler_params=plgpu.CompilerParams(),
        **keywords,
    )(*inputs)
