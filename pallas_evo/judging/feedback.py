"""What a language model, or a person, is told about a candidate: two or three sentences on what to change."""

from __future__ import annotations

from collections.abc import Mapping

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
}


def describe(
    task: Task, rejection: Rejection | None, sizes: Mapping[str, SizeResult], compiled: Mapping[str, Compiled]
) -> str:
    """The text feedback for one evaluation."""
    if rejection is not None:
        hint = _HINTS.get(rejection.reason, "")
        return f"Rejected ({rejection.reason}): {rejection.message} {hint}".strip()
    parts = [f"Correct for {task.id}."]
    for name, size in sizes.items():
        if size.median_us and size.xla_us:
            near = f", {size.roofline_percent:.0f} % of the roofline" if size.roofline_percent is not None else ""
            parts.append(
                f"At {name}: {size.median_us:.2f} us, XLA {size.xla_us:.2f} us "
                f"({size.xla_us / size.median_us:.2f}x){near}."
            )
    for sm, made in compiled.items():
        spilled = f", {made.spill_bytes} bytes spilled: use smaller blocks or more warps" if made.spill_bytes else ""
        parts.append(
            f"{sm}: {made.registers} registers, {made.shared_bytes} bytes of shared memory, occupancy "
            f"{made.occupancy:.0%}{spilled}."
        )
    if not any(size.median_us for size in sizes.values()):
        parts.append("It was not timed: there is no GPU here.")
    return " ".join(parts)
