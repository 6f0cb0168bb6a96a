"""Programs for the validator's tests: honest exports, exports with JAX's checks off, and edits of printed modules."""

from __future__ import annotations

import functools
import importlib.util
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import export
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton as plgpu
from jax.sharding import AbstractDevice, AbstractMesh, AxisType

from pallas_evo.artefact import validate
from pallas_evo.config import ArtefactLimits
from pallas_evo.types import ArraySpec, Artefact, Rejection, Workload

LIMITS = ArtefactLimits()
TILE = (16, 16)
SEEDS = Path(__file__).parents[3] / "seeds"


def spec(*shape: int, dtype: str = "float32") -> ArraySpec:
    return ArraySpec(shape=shape, dtype=dtype)


def workload(*inputs: ArraySpec, output: ArraySpec | None = None) -> Workload:
    return Workload(task_id="L1/test", label="small", dims={}, inputs=inputs, output=output or inputs[0])


ONE = workload(spec(*TILE))
TWO = workload(spec(*TILE), spec(*TILE))


def export_bytes(function: Callable[..., Any], task: Workload, **jit: Any) -> bytes:
    """What the tracer hands over: lowered for a GPU that is not here, JAX's own checks off."""
    mesh = AbstractMesh(
        (1,),
        ("x",),
        axis_types=(AxisType.Auto,),
        abstract_device=AbstractDevice(device_kind="NVIDIA A100 80GB PCIe", platform="gpu", num_cores=None),
    )
    avals = [jax.ShapeDtypeStruct(item.shape, item.dtype) for item in task.inputs]
    off = [
        export.DisabledSafetyCheck.custom_call(name)
        for name in (
            "__gpu$xla.gpu.triton",
            "annotate_device_placement",
            "xla_ffi_python_gpu_callback",
            "Sharding",
            "evil",
        )
    ]
    with jax.sharding.use_abstract_mesh(mesh):
        exported = export.export(jax.jit(function, **jit), platforms=["cuda"], disabled_checks=off)(*avals)
    return bytes(exported.mlir_module_serialized)


def tile(body: Callable[..., None], outputs: Any = None, **options: Any) -> Callable[..., Any]:
    """A one-program kernel over whole (16, 16) arrays."""
    shape = jax.ShapeDtypeStruct(TILE, jnp.float32) if outputs is None else outputs
    return pl.pallas_call(
        body, grid=(1,), out_shape=shape, compiler_params=plgpu.CompilerParams(num_warps=4, num_stages=1), **options
    )


def elementwise(function: Callable[..., Any]) -> Callable[..., Any]:
    """`function` inside a kernel, on as many operands as are given."""

    def body(*refs: Any) -> None:
        refs[-1][...] = function(*(ref[...] for ref in refs[:-1]))

    return tile(body)


relu = elementwise(lambda x: jnp.maximum(x, 0.0))
add = elementwise(jnp.add)


def judge(
    function: Callable[..., Any], task: Workload = ONE, limits: ArtefactLimits = LIMITS, **jit: Any
) -> Artefact | Rejection:
    return validate(export_bytes(function, task, **jit), task, limits)


def accepted(result: Artefact | Rejection) -> Artefact:
    assert isinstance(result, Artefact), result
    return result


@functools.cache
def relu_text() -> str:
    return accepted(judge(relu)).module


@functools.cache
def text_of(name: str) -> str:
    """The printed module of one of the honest programs below."""
    function, task = HONEST[name]
    return accepted(judge(function, task)).module


_IR = re.compile(r'ir = "((?:[^"\\]|\\.)*)"')


def ttir_of(module: str) -> str:
    """The first kernel's Triton IR inside a printed module."""
    found = _IR.search(module)
    assert found
    return re.sub(r"\\([0-9A-F]{2})", lambda m: chr(int(m.group(1), 16)), found.group(1).replace(r"\\", r"\5C"))


def with_ttir(module: str, ttir: str) -> str:
    """A printed module with other Triton IR in its first kernel."""
    escaped = "".join(c if c not in '"\\\n' and " " <= c <= "~" else f"\\{ord(c):02X}" for c in ttir)
    return _IR.sub(lambda _: f'ir = "{escaped}"', module, count=1)


def edited(module: str, old: str, new: str) -> str:
    assert old in module, f"{old!r} is not in the module"
    return module.replace(old, new, 1)


def edited_ttir(module: str, old: str, new: str) -> str:
    return with_ttir(module, edited(ttir_of(module), old, new))


def seed_kernel(path: Path) -> Callable[..., Any]:
    """The `kernel` of a seed file, imported under a name of its own."""
    loader = importlib.util.spec_from_file_location(f"seed_{path.stem}", path)
    assert loader
    assert loader.loader
    module = importlib.util.module_from_spec(loader)
    loader.loader.exec_module(module)
    return module.kernel  # type: ignore[no-any-return]


# Honest programs, for edits and for what must pass.


def _accumulate(x: jax.Array) -> jax.Array:
    """Atomics into zeros made in the module."""

    def body(x_ref: Any, zero_ref: Any, o_ref: Any) -> None:
        rows, cols = jnp.arange(16)[:, None], jnp.arange(16)[None, :]
        plgpu.atomic_add(o_ref, (rows, cols), x_ref[...])

    return tile(body, input_output_aliases={1: 0})(x, jnp.zeros(TILE, jnp.float32))


def _looped(x: jax.Array) -> jax.Array:
    """A product accumulated over a loop, as a matmul does."""

    def body(x_ref: Any, o_ref: Any) -> None:
        o_ref[...] = jax.lax.fori_loop(
            0, 4, lambda i, total: total + jnp.dot(x_ref[...], x_ref[...].T), jnp.zeros(TILE)
        )

    return tile(body)(x)


def _branch(x: jax.Array) -> jax.Array:
    def body(x_ref: Any, o_ref: Any) -> None:
        o_ref[...] = jnp.zeros(TILE)

        @pl.when(pl.program_id(0) == 0)
        def _() -> None:
            o_ref[...] = x_ref[...]

    return tile(body)(x)


def _while(x: jax.Array) -> jax.Array:
    def body(x_ref: Any, o_ref: Any) -> None:
        o_ref[...] = jax.lax.while_loop(lambda c: jnp.sum(c) < 10.0, lambda c: c + 1.0, x_ref[...])

    return tile(body)(x)


def _hints(x: jax.Array) -> jax.Array:
    def body(x_ref: Any, o_ref: Any) -> None:
        rows = pl.multiple_of(pl.program_id(0) * 16, 16) + jnp.arange(16)
        cols = plgpu.max_contiguous(jnp.arange(16), 16)
        where = (rows[:, None], cols[None, :])
        value = plgpu.load(x_ref.at[where], mask=rows[:, None] < 16, other=0.0, eviction_policy="evict_last")
        plgpu.store(o_ref.at[where], value, eviction_policy="evict_first")

    return tile(body)(x)


def _two_outputs(x: jax.Array) -> jax.Array:
    def body(x_ref: Any, o_ref: Any, p_ref: Any) -> None:
        o_ref[...] = x_ref[...]
        p_ref[...] = -x_ref[...]

    shape = jax.ShapeDtypeStruct(TILE, jnp.float32)
    first, second = tile(body, (shape, shape))(x)
    return add(first, second)


def _table(x: jax.Array) -> jax.Array:
    """A small table computed outside from constants only."""
    table = jnp.where(jnp.arange(16) > 3, 2.0, jnp.sqrt(3.0)) * jnp.arange(16).astype(jnp.float32)
    return add(x, jnp.broadcast_to(table, TILE))


HONEST: dict[str, tuple[Callable[..., Any], Workload]] = {
    "relu": (relu, ONE),
    "add": (add, TWO),
    "pipeline": (lambda x: relu(elementwise(jnp.exp)(x)), ONE),
    "accumulate": (_accumulate, ONE),
    "looped": (_looped, ONE),
    "branch": (_branch, ONE),
    "while": (_while, ONE),
    "hints": (_hints, ONE),
    "two outputs": (_two_outputs, ONE),
    "table": (_table, ONE),
    "softmax": (elementwise(lambda x: jax.nn.softmax(x, axis=-1)), ONE),
    "gelu": (elementwise(jax.nn.gelu), ONE),
    "cumsum": (elementwise(lambda x: jnp.cumsum(x, axis=1)), ONE),
    "argmax": (elementwise(lambda x: jnp.argmax(x, axis=1)[:, None].astype(jnp.float32) + x), ONE),
    "large numbers": (elementwise(lambda x: jnp.clip(x, -2.1e9, 2.1e9).astype(jnp.int32).astype(jnp.float32)), ONE),
    "bfloat16 dot": (
        elementwise(
            lambda x: jnp.dot(x.astype(jnp.bfloat16), x.T.astype(jnp.bfloat16), preferred_element_type=jnp.float32)
        ),
        ONE,
    ),
    "highest dot": (elementwise(lambda x: jnp.dot(x, x, precision="highest")), ONE),
    "transposed": (lambda x: relu(x.T), ONE),
    "padded": (lambda x: relu(jnp.pad(x[:8], ((0, 8), (0, 0)))), ONE),
    "concatenated": (lambda x: relu(jnp.concatenate([x[8:], x[:8]])), ONE),
    "reversed": (lambda x: relu(x[::-1, ::-1]), ONE),
    "reshaped": (lambda x: relu(x.reshape(4, 64)[:, None].reshape(16, 16)).reshape(16, 16), ONE),
    "dynamic slice": (lambda x: relu(jax.lax.dynamic_slice(jnp.concatenate([x, x]), (3, 0), TILE)), ONE),
    "barrier": (lambda x: relu(jax.lax.optimization_barrier(x)), ONE),
    "converted": (lambda x: elementwise(lambda v: v.astype(jnp.float32))(x.astype(jnp.bfloat16)), ONE),
    "inner jit": (lambda x: jax.jit(lambda v: relu(jnp.roll(v, 1, 0)))(x), ONE),
    "vmap": (lambda x: jax.vmap(elementwise(jnp.exp))(x[None])[0], ONE),
    "metadata": (
        tile(lambda x_ref, o_ref: o_ref.__setitem__(..., x_ref[...]), metadata={"note": "ours"}, name="named"),
        ONE,
    ),
    "debug": (tile(lambda x_ref, o_ref: o_ref.__setitem__(..., x_ref[...]), debug=False), ONE),
    "integers": (
        elementwise(lambda x, i: x + i.astype(jnp.float32)),
        workload(spec(*TILE), spec(*TILE, dtype="int32"), output=spec(*TILE)),
    ),
    "splat constant": (lambda x: add(x, np.full(TILE, 2.0, np.float32)), ONE),
    "mask constant": (
        lambda x: elementwise(lambda v, m: jnp.where(m, v, 0.0))(x, np.arange(256).reshape(TILE) % 3 == 0),
        ONE,
    ),
}
"""Name -> program and workload: a validator that refuses one of these is wrong."""
