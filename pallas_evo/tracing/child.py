"""The tracer's child: runs a candidate's Python, confined, and sends its exported programs back.

By the time `main` is called this process can read the interpreter and the installed packages, write to its scratch
folder, and answer on one pipe. Anything it sends is hostile to the parent, because the candidate can send it as well.

Frames out: `R` when JAX is loaded; then, for each workload in the order asked for, `M` and the serialised StableHLO
module, or `E` and a JSON object that says what went wrong, after which nothing more comes. After the last module, where
the request names a workload for it, `J` and that workload's Jaxpr as text, or nothing after the `J`.
"""

from __future__ import annotations

import functools
import inspect
import json
import linecache
import os
import sys
import types
from typing import Any

from pallas_evo.jail.frames import Channel

PRELOAD = ("jax.numpy", "jax.export", "jax.experimental.pallas.triton")
"""What a nursery imports before it forks; it starts no thread."""

WARM = "PALLAS_EVO_WARM"
"""In the environment of a process that is started ahead of its candidate."""

FILE_NAME = "candidate.py"
MESSAGE_CHARACTERS = 4000


class _Refused(Exception):
    """A refusal that this module words itself."""

    def __init__(self, stage: str, message: str) -> None:
        super().__init__(message)
        self.stage = stage


def main(channel: Channel) -> None:
    """Load JAX, say so, take one request, answer it, end."""
    import jax.experimental.pallas.triton
    import jax.export
    import jax.numpy  # noqa: F401

    if WARM in os.environ:
        _warm()
    channel.send(b"R")
    frame = channel.receive()
    if frame is not None:
        _answer(channel, json.loads(frame))
    sys.stdout.flush()
    os._exit(0)


def _warm() -> None:
    """Export a kernel of ours, in a process that waits for its candidate: the first export costs 0.2 s of loading."""
    import jax
    import jax.numpy as jnp
    from jax.experimental import pallas as pl
    from jax.experimental.pallas import triton as plgpu

    def body(x: Any, y: Any, out: Any) -> None:
        rows = jnp.arange(16)
        inside = (rows < 16)[:, None] & (rows < 16)[None, :]
        where = (rows[:, None], rows[None, :])
        left = plgpu.load(x.at[where], mask=inside, other=0.0)
        total = jax.lax.fori_loop(0, 2, lambda _, sums: sums + jnp.dot(left, y[...]), jnp.zeros((16, 16), jnp.float32))
        plgpu.store(out.at[where], jnp.exp(total - jnp.max(total, axis=1, keepdims=True)), mask=inside)

    def first(x: jax.Array, y: jax.Array) -> jax.Array:
        result: jax.Array = pl.pallas_call(
            body,
            out_shape=jax.ShapeDtypeStruct((16, 16), jnp.float32),
            grid=(1,),
            compiler_params=plgpu.CompilerParams(num_warps=4, num_stages=2),
        )(x, y)
        return result

    square = [[16, 16], "float32"]
    _export(first, {"inputs": [square, square], "output": square}, "NVIDIA A100 80GB PCIe")


def _answer(channel: Channel, request: dict[str, Any]) -> None:
    stage = "import"
    try:
        if request["force_triton"]:
            _force_triton()
        kernel = _load(request["source"])
        stage = "trace"
        for workload in request["workloads"]:
            module = _export(kernel, workload, request["device_kind"])
            if len(module) > request["artefact_bytes"]:
                raise _Refused("artefact_size", f"{len(module)}")
            channel.send(b"M" + module)
        if request["jaxpr_of"] is not None:
            jaxpr = _jaxpr(kernel, request["workloads"][request["jaxpr_of"]], request["device_kind"])
            channel.send(b"J" + _text(jaxpr, request["jaxpr_bytes"]))
    except BaseException as error:
        channel.send(b"E" + json.dumps(_describe(error, stage)).encode())


def _load(source: str) -> Any:
    """Run the source as a module called `candidate`, in a file name that tracebacks and JAX take for the user's."""
    linecache.cache[FILE_NAME] = (len(source), None, source.splitlines(keepends=True), FILE_NAME)
    module = types.ModuleType("candidate")
    module.__file__ = FILE_NAME
    sys.modules["candidate"] = module
    exec(compile(source, FILE_NAME, "exec"), module.__dict__)
    kernel = module.__dict__.get("kernel")
    if not callable(kernel):
        raise _Refused("no_kernel", "")
    return kernel


def _text(jaxpr: Any, most_bytes: int) -> bytes:
    """The Jaxpr as text; nothing where it is too long or cannot be printed. No verdict hangs on it."""
    try:
        text = str(jaxpr).encode("utf-8", "replace")
    except Exception:
        return b""
    return text if len(text) <= most_bytes else b""


def _export(kernel: Any, workload: dict[str, Any], device_kind: str) -> bytes:
    """One program: `kernel` at one workload, lowered for a GPU that is not here."""
    import jax
    from jax import export
    from jax.experimental.pallas import triton as plgpu

    inputs = [jax.ShapeDtypeStruct(tuple(shape), dtype) for shape, dtype in workload["inputs"]]
    try:
        inspect.signature(kernel).bind(*inputs)
    except TypeError as error:
        raise _Refused("arity", str(error)) from None
    except ValueError:
        pass  # some callables have no signature: the call itself will tell
    call = getattr(plgpu, "CUSTOM_CALL_TARGET_NAME", "__gpu$xla.gpu.triton")
    with _gpu(device_kind):
        exported = export.export(
            jax.jit(kernel), platforms=["cuda"], disabled_checks=[export.DisabledSafetyCheck.custom_call(call)]
        )(*inputs)
    shape, dtype = workload["output"]
    came = [f"{aval.dtype}{list(aval.shape)}" for aval in exported.out_avals]
    if came != [f"{dtype}{list(shape)}"] or not jax.tree_util.treedef_is_leaf(exported.out_tree):
        bare = jax.tree_util.treedef_is_leaf(exported.out_tree)
        raise _Refused("signature", ", ".join(came) if bare else f"({', '.join(came)}) as {exported.out_tree}")
    return exported.mlir_module_serialized


def _jaxpr(kernel: Any, workload: dict[str, Any], device_kind: str) -> Any:
    """What was traced for an export of the same workload: JAX keeps it."""
    import jax

    with _gpu(device_kind):
        return jax.jit(kernel).trace(*(jax.ShapeDtypeStruct(tuple(s), dtype) for s, dtype in workload["inputs"])).jaxpr


def _gpu(device_kind: str) -> Any:
    """A block in which JAX lowers for a GPU that is not here."""
    import jax
    from jax.sharding import AbstractDevice, AbstractMesh, AxisType

    # Auto axes: with the default (Explicit) ones, honest glue carries sharding constraints from JAX 0.11 on.
    mesh = AbstractMesh(
        (1,),
        ("x",),
        axis_types=(AxisType.Auto,),
        abstract_device=AbstractDevice(device_kind=device_kind, platform="gpu", num_cores=None),
    )
    return jax.sharding.use_abstract_mesh(mesh)


def _force_triton() -> None:
    """For the TPU originals: a plain `pallas_call` is lowered by the Triton backend, in every JAX version."""
    from jax.experimental import pallas
    from jax.experimental.pallas import triton as plgpu

    original = pallas.pallas_call

    @functools.wraps(original)
    def pallas_call(*arguments: Any, **options: Any) -> Any:
        if not isinstance(options.get("compiler_params"), plgpu.CompilerParams):
            options["compiler_params"] = plgpu.CompilerParams()
        return original(*arguments, **options)

    pallas.pallas_call = pallas_call


def _describe(error: BaseException, stage: str) -> dict[str, Any]:
    """What the parent needs to say where and why: never the traceback's whole text, which names our files."""
    if isinstance(error, _Refused):
        return {"stage": error.stage, "type": "", "message": str(error), "line": None}
    try:
        message = str(error)[:MESSAGE_CHARACTERS]
    except BaseException:
        message = ""
    if isinstance(error, MemoryError):
        stage = "memory"
    elif isinstance(error, SyntaxError) and stage == "import" and error.filename == FILE_NAME:
        stage = "syntax"
    elif stage == "trace" and _in_lowering(error):
        stage = "lower"
    line = error.lineno if isinstance(error, SyntaxError) else _line(error)
    return {"stage": stage, "type": type(error).__name__[:80], "message": message, "line": line}


def _frames(error: BaseException) -> list[tuple[str, int]]:
    frames: list[tuple[str, int]] = []
    traceback = error.__traceback__
    while traceback is not None and len(frames) < 10_000:
        frames.append((traceback.tb_frame.f_code.co_filename, traceback.tb_lineno))
        traceback = traceback.tb_next
    return frames


def _in_lowering(error: BaseException) -> bool:
    """Whether the exception came out of a lowering rule, rather than out of the candidate's own code."""
    files = [file for file, _ in _frames(error)]
    lowering = [at for at, file in enumerate(files) if file.endswith(("interpreters/mlir.py", "triton/lowering.py"))]
    own = [at for at, file in enumerate(files) if file == FILE_NAME]
    checks = "custom calls whose targets" in str(error)  # jax.export's own check, after lowering
    return checks or (bool(lowering) and (not own or own[-1] < lowering[-1]))


def _line(error: BaseException) -> int | None:
    """The innermost line of the candidate on the way to the error, or to what the error was made from."""
    seen: list[BaseException] = []
    left: list[BaseException | None] = [error]
    while left and len(seen) < 20:
        current = left.pop(0)
        if current is None or current in seen:
            continue
        seen.append(current)
        lines = [line for file, line in _frames(current) if file == FILE_NAME]
        if lines:
            return lines[-1]
        left += [current.__cause__, current.__context__]
    return None
