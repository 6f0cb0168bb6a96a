"""The system message of a task: what a language model must know to write a faster kernel that the judge accepts."""

from __future__ import annotations

from pallas_evo.devices import binds, find_device, floor_us
from pallas_evo.types import Task

_CONTRACT = """\
The file defines `kernel(*inputs)`, which takes the inputs above in order and returns the one output, right at every
size within the ranges (odd and prime ones too: mask the edges). Change only what lies between the EVOLVE-BLOCK
markers, keep both markers, never write triple backticks. Imports: jax and below, numpy, math, functools, itertools,
operator, typing, dataclasses.

Every output element is computed in pl.pallas_call with the Triton backend
(compiler_params=plgpu.CompilerParams(num_warps=..., num_stages=...); plgpu.load and plgpu.store with jnp.arange
indices and a mask). jnp.arange takes powers of two; a block has at most 1,048,576 elements, jnp.dot operands at
least 16 along each axis. Block sizes may depend on the input shapes, which are static.

Refused: arithmetic on inputs outside the Pallas kernels (reshape, transpose, slice, pad, concatenate, broadcast and
float conversion are allowed there, up to 8 times the bytes of inputs and output), jnp.dot or reductions outside
them, gathers, scatters, callbacks, random numbers, inline assembly, loads or stores out of bounds, output elements
that no program or more than one program writes, stores into inputs, programs that depend on anything but the shapes.
"""

_PRECISION = {
    "exact": "The output must equal the reference bit for bit.",
    "f32": "Values are float32 throughout: relative error about 1e-5. bfloat16 anywhere is refused.",
    "dot": "Dot operands may be rounded to TF32 (the default of jnp.dot here), never to bfloat16 or float16.",
}


def system_message(task: Task, *, device: str | None, sizes: tuple[str, ...] = ("medium",)) -> str:
    """The system message.

    Args:
        task: the task.
        device: the GPU that candidates are timed on; None where they are not timed.
        sizes: the sizes at which they are timed.
    """
    return "\n\n".join(
        part
        for part in (
            f"You write GPU kernels in JAX Pallas (Triton backend). Task {task.id}, {task.category}.",
            f"Formula:\n    {task.formula}" + (f"\n{task.note}" if task.note else ""),
            _shapes(task),
            _CONTRACT.strip(),
            _PRECISION[task.precision],
            _device(task, device, sizes),
            _score(device, sizes),
        )
        if part
    )


def _shapes(task: Task) -> str:
    lines = [
        f"    {spec.name}: ({', '.join(map(str, spec.shape))}) {spec.dtype}, {spec.law.replace('_', ' ')}"
        for spec in task.inputs
    ]
    output = f"    output: ({', '.join(map(str, task.output_shape))}) {task.output_dtype}"
    dims = [
        f"    {name}: {dim.min} to {dim.max}; small {dim.small}, medium {dim.medium}, large {dim.large}"
        for name, dim in task.dims.items()
    ]
    return "\n".join(["Inputs:", *lines, output, "Sizes:", *dims])


def _device(task: Task, device: str | None, sizes: tuple[str, ...]) -> str:
    known = find_device(device or "NVIDIA A100 80GB PCIe")
    if known is None:
        return f"Device: {device}."
    import numpy as np

    from pallas_evo.tasks import dims_of, draw_inputs, floor

    size = sizes[0] if sizes and sizes[0] in ("small", "medium", "large") else "medium"
    inputs = draw_inputs(task, dims_of(task, size), np.random.default_rng(0))  # type: ignore[arg-type]
    least = floor(task, inputs)
    return (
        f"Device: {known.name}, {known.bandwidth_gb_s:,.0f} GB/s, {known.tf32_tflop_s:g} TFLOP/s dense TF32, up to "
        "163 KB of shared memory and 1024 threads a block, 255 registers a thread (spilling is slow). Roofline at "
        f"{size}: {floor_us(least, known):.2f} us, bound by {binds(least, known)}."
    )


def _score(device: str | None, sizes: tuple[str, ...]) -> str:
    if device is None:
        return "Score: 1.0 for a correct kernel, which is not timed here, and 0.0 for any that is refused."
    return (
        f"Score: the geometric mean over {', '.join(sizes)} of XLA's time over the kernel's, device time with a cold "
        "L2; 0.0 for any kernel that is refused. Beating XLA is above 1.0."
    )
