"""What a language model, or a person, is told about a candidate: two or three sentences on what to change."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pallas_evo.devices import find_device, limited_by
from pallas_evo.types import Compiled, Rejection, SizeResult, Task

_HINTS = {
    "not_pallas": "Compute every output element inside a pl.pallas_call (compiler_params=plgpu.CompilerParams(...)).",
    "glue_compute": "Move that arithmetic into the Pallas kernel; outside it values may only be moved or converted.",
    "forbidden_op": "Outside the kernels use reshape, transpose, slice, pad, concatenate and broadcast only.",
    "out_of_bounds": "Mask the load or store with its index against the array's size, or choose a block that divides.",
    "unwritten": "Let the grid cover the whole output: pl.cdiv(size, block) programs along each axis, edges masked.",
    "race": "Give each output element to one program, or reduce inside a program.",
    "numerics": "Check the mask values of reductions (-inf for max, 0 for sum), the accumulator's type and the edges.",
    "shared_memory": "Use smaller BLOCK sizes or fewer num_stages.",
    "nondeterministic_trace": "Make tracing a pure function of the input shapes.",
    "sanitizer": "Mask every load and store with its index against the array's size, and write before you read.",
}

NEAR_PERCENT = 85.0
"""Share of the roofline from which on little is left: a plain copy reaches 90 % of an H200's datasheet bandwidth."""
LOW_OCCUPANCY = 0.25
MUCH_SHARED_BYTES = 100 << 10


def describe(
    task: Task,
    rejection: Rejection | None,
    sizes: Mapping[str, SizeResult],
    compiled: Mapping[str, Compiled],
    *,
    timing: Mapping[str, Mapping[str, Any]] | None = None,
    device: str | None = None,
) -> str:
    """The text feedback for one evaluation.

    Args:
        timing: by size, what was measured beside the samples: `kernels` {"candidate": launches of one call}, `binds`.
        device: the GPU's name; what was compiled for it is spoken of, else what was compiled first.
    """
    if rejection is not None:
        hint = _HINTS.get(rejection.reason, "")
        return f"Rejected ({rejection.reason}): {rejection.message} {hint}".strip()
    timed = {name: size for name, size in sizes.items() if size.median_us and size.xla_us}
    made = _for_device(compiled, device)
    kernels, bound = 1, None
    parts = []
    for name, size in timed.items():
        evidence = (timing or {}).get(name, {})
        kernels = (evidence.get("kernels") or {}).get("candidate", 1)
        bound = _bound(size, evidence.get("binds"), kernels)
        parts.append(_time(name, size, bound, kernels))
    text = f"Correct for {task.id}; " + "; ".join(parts) + "." if parts else f"Correct for {task.id}."
    said = [text]
    if made is not None:
        spilled = f"{made.spill_bytes} bytes spilled" if made.spill_bytes else "no spills"
        said.append(
            f"{made.sm}: {made.registers} registers, {spilled}, {made.shared_bytes} bytes of shared memory, occupancy "
            f"{made.occupancy:.0%}."
        )
    if not timed:
        said.append("It was not timed: there is no GPU here.")
    last = list(timed.values())[-1] if timed else None
    said.append(f"Next: {_next(task, last, bound, kernels, made)}.")
    return " ".join(said)


def _for_device(compiled: Mapping[str, Compiled], device: str | None) -> Compiled | None:
    known = find_device(device) if device else None
    if known is not None and known.sm in compiled:
        return compiled[known.sm]
    return next(iter(compiled.values()), None)


def _bound(size: SizeResult, binds: str | None, kernels: int) -> str | None:
    if binds is None or size.floor_us is None or size.median_us is None:
        return None
    return limited_by(binds, floor_us=size.floor_us, median_us=size.median_us, kernels=kernels)


def _time(name: str, size: SizeResult, bound: str | None, kernels: int) -> str:
    assert size.median_us
    assert size.xla_us
    near = f", {size.roofline_percent:.0f} % of the roofline" if size.roofline_percent is not None else ""
    by = {
        None: "",
        "launch": f", bound by launching its {kernels} kernel{'s' if kernels > 1 else ''}",
    }.get(bound, f", bound by {bound}")
    return (
        f"at {name} {size.median_us:.2f} us, XLA {size.xla_us:.2f} us ({size.xla_us / size.median_us:.2f}x){near}{by}"
    )


def _next(task: Task, size: SizeResult | None, bound: str | None, kernels: int, made: Compiled | None) -> str:
    """The next thing to try, by what was measured; the first that applies."""
    if made is not None and made.spill_bytes:
        return "end the spills, which go through memory, with smaller blocks or more num_warps"
    if made is not None and made.shared_bytes > MUCH_SHARED_BYTES:
        return (
            f"need less shared memory than {made.shared_bytes} bytes, by one stage less or half the BLOCK_K, so that "
            "more programs fit on a multiprocessor"
        )
    if kernels > 1:
        return (
            f"put its {kernels} kernels into one pallas_call where a program can hold what it needs: each kernel "
            "writes to memory what the next one reads again"
        )
    if bound == "launch":
        return (
            "starting the kernel is most of the time at this size: try a grid whose programs fill the multiprocessors "
            "once, and fewer num_warps"
        )
    if size is not None and (size.roofline_percent or 0.0) >= NEAR_PERCENT:
        return "little is left at this size; try num_warps and the order of the grid"
    if made is not None and made.occupancy < LOW_OCCUPANCY:
        return (
            f"raise the occupancy of {made.occupancy:.0%}, by smaller blocks or fewer num_stages, so that loads of "
            "more programs overlap"
        )
    if bound == "compute" or (bound is None and task.precision == "dot"):
        return (
            "give the tensor cores more: BLOCK sizes of 128 for jnp.dot's operands, num_warps 8, num_stages 3 or 4; "
            "transpose outside an operand that is not contiguous along K; walk the grid in groups that share the L2"
        )
    return (
        "make a program's accesses contiguous and wide (128 elements or more along the last axis), read each input "
        "once, and try num_warps 4 and 8"
    )
