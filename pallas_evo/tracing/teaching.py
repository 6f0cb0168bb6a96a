"""From what went wrong in a tracer to a reason and a sentence that says what to change.

Everything here works on text that a candidate may have written: it is cut, made printable, and never executed or
parsed as Python.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from pallas_evo.config import TraceLimits
from pallas_evo.jail import Ended, printable
from pallas_evo.types import ArraySpec, Rejection, Task, Workload

MESSAGE_CHARACTERS = 1500
BLOCK_ELEMENTS = 1 << 20
OUT_OF_MEMORY = ("MemoryError", "bad_alloc", "Out of memory", "out of memory", "RESOURCE_EXHAUSTED", "Cannot allocate")


@dataclass(frozen=True, kw_only=True)
class Trouble:
    """Why a tracer gave no program for the workload at index `at`. All text in it may be hostile."""

    stage: str
    at: int
    type: str = ""
    message: str = ""
    line: int | None = None
    output_text: str = ""

    @classmethod
    def of_message(cls, record: dict[str, Any], output_text: str, *, at: int) -> Trouble:
        """From what the child wrote: anything of a wrong type is dropped."""

        def text(key: str) -> str:
            value = record.get(key)
            return printable(value[:MESSAGE_CHARACTERS]).strip() if isinstance(value, str) else ""

        line = record.get("line")
        line = line if isinstance(line, int) and not isinstance(line, bool) and 0 < line < 1 << 20 else None
        return cls(
            stage=text("stage"),
            at=at,
            type=re.sub(r"\W", "", text("type"))[:80],
            message=text("message"),
            line=line,
            output_text=output_text,
        )

    @classmethod
    def of_end(cls, ended: Ended, *, at: int) -> Trouble:
        """From the way a process ended."""
        stage, how = ended.reason, ended.signal or f"exit code {ended.returncode}"
        if stage == "exited" and ended.signal == "SIGXCPU":
            stage = "timeout"
        said = ended.output_text[-MESSAGE_CHARACTERS:]
        return cls(stage=stage, at=at, type=how, output_text=said)

    def at_workload(self, index: int) -> Trouble:
        """The same, for another place in the caller's order."""
        return dataclasses.replace(self, at=index)


def rejection(
    trouble: Trouble, source: str, task: Task, workloads: Sequence[Workload], limits: TraceLimits
) -> Rejection:
    """The reason and the sentence."""
    size = workloads[min(max(trouble.at, 0), len(workloads) - 1)]
    if any(sign in trouble.type or sign in trouble.message for sign in OUT_OF_MEMORY):
        return Rejection(reason="memory", message=_memory(limits, trouble))
    handler = _HANDLERS.get(trouble.stage, _garbage)
    return handler(trouble, source, task, size, limits)


# One function a stage

_Handler = Callable[[Trouble, str, Task, Workload, TraceLimits], Rejection]


def _exited(trouble: Trouble, source: str, task: Task, size: Workload, limits: TraceLimits) -> Rejection:
    if trouble.type == "SIGKILL" or any(sign in trouble.output_text for sign in OUT_OF_MEMORY):
        return Rejection(reason="memory", message=_memory(limits, trouble))
    if trouble.type == "SIGSYS":
        return Rejection(reason="jail_violation", message="The process made a system call that no kernel needs.")
    said = trouble.output_text.strip().splitlines()[-1:] or [""]
    return Rejection(
        reason="no_artefact",
        message=(
            f"The process that traced `kernel` ended ({trouble.type}) without handing over a program. A candidate must "
            f"only define `kernel`: it must not exit, and must not write results itself.{_quote(said[0])}"
        ),
    )


def _closed(trouble: Trouble, source: str, task: Task, size: Workload, limits: TraceLimits) -> Rejection:
    return Rejection(
        reason="no_artefact",
        message="The process that traced `kernel` closed its pipe. A candidate must only define `kernel`.",
    )


def _timeout(trouble: Trouble, source: str, task: Task, size: Workload, limits: TraceLimits) -> Rejection:
    return Rejection(
        reason="timeout",
        message=(
            f"Importing the candidate and tracing `kernel` did not end within {limits.deadline_s:g} s. A Python loop "
            "is unrolled into the program, step by step: use a grid, or lax.fori_loop, and no loop at import."
        ),
    )


def _artefact_size(trouble: Trouble, source: str, task: Task, size: Workload, limits: TraceLimits) -> Rejection:
    came = f"{int(trouble.message):,} bytes" if re.fullmatch(r"\d{1,15}", trouble.message) else "more"
    return Rejection(
        reason="artefact_size",
        message=(
            f"The exported program at size {_of(size)} has {came}; at most {limits.artefact_bytes:,} are taken. Large "
            "constants and unrolled loops make it so: compute tables in the kernel, loop with lax.fori_loop."
        ),
    )


def _limit(trouble: Trouble, source: str, task: Task, size: Workload, limits: TraceLimits) -> Rejection:
    what = "wrote more files than" if trouble.stage == "scratch" else "started more threads than"
    return Rejection(reason="jail_violation", message=f"The process {what} any kernel needs, and was killed.")


def _garbage(trouble: Trouble, source: str, task: Task, size: Workload, limits: TraceLimits) -> Rejection:
    return Rejection(
        reason="malformed",
        message="The process that traced `kernel` sent something that is no program. A candidate must only define "
        "`kernel`.",
    )


def _syntax(trouble: Trouble, source: str, task: Task, size: Workload, limits: TraceLimits) -> Rejection:
    return Rejection(
        reason="syntax", message=f"The file is not valid Python{_where(trouble, source)}: {trouble.message}."
    )


def _no_kernel(trouble: Trouble, source: str, task: Task, size: Workload, limits: TraceLimits) -> Rejection:
    return Rejection(
        reason="no_kernel",
        message=f"After the import there is no function called `kernel`. Define kernel({_names(task)}).",
    )


def _arity(trouble: Trouble, source: str, task: Task, size: Workload, limits: TraceLimits) -> Rejection:
    return Rejection(
        reason="arity",
        message=(
            f"`kernel` must take exactly the {len(task.inputs)} input(s) of {task.id}, in order: "
            f"kernel({_names(task)}). Calling it so said: {trouble.message or 'TypeError'}."
        ),
    )


def _signature(trouble: Trouble, source: str, task: Task, size: Workload, limits: TraceLimits) -> Rejection:
    came = trouble.message or "something else"
    hint = " Return the array itself, not a tuple or list." if " as " in came else ""
    return Rejection(
        reason="signature",
        message=f"At size {_of(size)}, `kernel` must return one {_spec(size.output)}; it returned {came}.{hint}",
    )


def _import(trouble: Trouble, source: str, task: Task, size: Workload, limits: TraceLimits) -> Rejection:
    said = _advice(trouble, source) or _plain(trouble)
    return Rejection(reason="import_error", message=f"Importing the candidate failed{_where(trouble, source)}: {said}")


def _trace(trouble: Trouble, source: str, task: Task, size: Workload, limits: TraceLimits) -> Rejection:
    said = _advice(trouble, source) or _plain(trouble)
    return Rejection(
        reason="trace_error", message=f"Tracing `kernel` at size {_of(size)} failed{_where(trouble, source)}: {said}"
    )


def _lower(trouble: Trouble, source: str, task: Task, size: Workload, limits: TraceLimits) -> Rejection:
    reason = "forbidden_custom_call" if "custom calls whose targets" in trouble.message else "lowering_error"
    said = _advice(trouble, source) or _plain(trouble)
    return Rejection(
        reason=reason,
        message=f"Lowering `kernel` to Triton at size {_of(size)} failed{_where(trouble, source)}: {said}",
    )


_HANDLERS: dict[str, _Handler] = {
    "exited": _exited,
    "closed": _closed,
    "timeout": _timeout,
    "too_large": _artefact_size,
    "artefact_size": _artefact_size,
    "scratch": _limit,
    "threads": _limit,
    "garbage": _garbage,
    "syntax": _syntax,
    "no_kernel": _no_kernel,
    "arity": _arity,
    "signature": _signature,
    "memory": lambda trouble, source, task, size, limits: Rejection(reason="memory", message=_memory(limits, trouble)),
    "import": _import,
    "trace": _trace,
    "lower": _lower,
}


# Advice: what well-known errors of JAX mean here, and what to write instead


def _advice(trouble: Trouble, source: str) -> str:
    for pattern, advise in _ADVICE:
        found = re.search(pattern, trouble.message, re.DOTALL)
        if found:
            return advise(found, source)
    return ""


def _power_of_two(found: re.Match[str], source: str) -> str:
    shape = [int(n) for n in re.findall(r"\d{1,12}", found.group(1))]
    odd = next((n for n in shape if n & (n - 1)), None)
    if odd is None:
        return f"an array of shape {found.group(1)} is not a power of two in size, and Triton needs one."
    power = 1 << odd.bit_length()
    near = f"{power // 2} or {power}" if power // 2 > 1 else str(power)
    named = _constant(source, odd)
    if named:
        return f"{named[0]} = {odd} (line {named[1]}) is not a power of two; Triton needs one: try {near}."
    return (
        f"a block of shape ({', '.join(map(str, shape))}) has a side of {odd}, which is not a power of two; Triton "
        f"needs one. Take a block of {near} and mask what hangs over the edge (plgpu.load and plgpu.store with mask=)."
    )


def _too_many_elements(found: re.Match[str], source: str) -> str:
    return (
        f"a block has too many elements; Triton takes at most {BLOCK_ELEMENTS:,}, and a few thousand are fast. Use a "
        "grid over smaller blocks."
    )


def _gone(found: re.Match[str], source: str) -> str:
    instead = {
        "load": "plgpu.load(ref.at[index], mask=..., other=...)",
        "store": "plgpu.store(ref.at[index], value, mask=...)",
        "swap": "plgpu.load and plgpu.store",
        "dot": "jnp.dot",
        "max_contiguous": "no hint: the compiler finds it",
        "multiple_of": "pl.multiple_of of JAX before 0.12, or no hint",
        "atomic_add": "plgpu.atomic_add",
        "TPUCompilerParams": "plgpu.CompilerParams",
        "TritonCompilerParams": "plgpu.CompilerParams",
    }.get(found.group(1))
    if instead is None:
        return ""
    where = " (from jax.experimental.pallas import triton as plgpu)" if "plgpu" in instead else ""
    return f"pl.{found.group(1)} does not exist; use {instead}{where}."


def _primitive(found: re.Match[str], source: str) -> str:
    name = found.group(1)
    instead = {
        "dynamic_slice": "load the part from the ref instead: plgpu.load(ref.at[pl.ds(start, size)])",
        "gather": "index the ref with an array of indices: plgpu.load(ref.at[rows, :])",
        "scatter": "store through the ref: plgpu.store(ref.at[index], value, mask=...)",
        "scatter-add": "use plgpu.atomic_add on the ref",
        "slice": "load the part from the ref instead of slicing a value",
        "concatenate": "store the parts one by one, or write them with jnp.where and an index",
        "pad": "load with a mask and other=0.0",
        "sort": "there is no sort inside a Triton kernel: write it with comparisons and reductions",
        "rev": "index the ref in reverse order",
        "split": "load the parts from the ref separately",
        "squeeze": "use reshape",
        "iota": "use jnp.arange with a power-of-two length",
    }.get(name, "write it with operations that Triton has: elementwise arithmetic, reductions, jnp.dot, masked loads")
    return f"`{name}` has no Triton lowering inside a kernel; {instead}."


def _small_dot(found: re.Match[str], source: str) -> str:
    return f"{found.group(0).strip()} Pad the blocks of a jnp.dot to at least 16 along every side."


def _custom_call(found: re.Match[str], source: str) -> str:
    return (
        "the program calls something outside Pallas Triton kernels (a callback, debug print, or a library routine). "
        "Only pl.pallas_call with plgpu.CompilerParams, and glue that moves data, may be used."
    )


def _index_shapes(found: re.Match[str], source: str) -> str:
    return "the index arrays of one access must broadcast together: for a 2-d tile, rows[:, None] and cols[None, :]."


def _cpu_backend(found: re.Match[str], source: str) -> str:
    return "a pallas_call ran while tracing, outside `kernel`'s own inputs: only call it on what `kernel` is given."


def _concrete(found: re.Match[str], source: str) -> str:
    return (
        "the program asks for the value of a traced array (in `if`, `while`, `int()`, `float()`, an index or a shape). "
        "Use jnp.where, lax.cond or lax.fori_loop, and take sizes from .shape."
    )


def _captured(found: re.Match[str], source: str) -> str:
    return (
        "a kernel body uses an array that is not one of its refs. Pass the array as an input of pl.pallas_call, or "
        "make it inside the body (jnp.arange, jnp.zeros, a Python number)."
    )


_ADVICE: tuple[tuple[str, Callable[[re.Match[str], str], str]], ...] = (
    (r"size is a power of 2\. Encountered an array of shape \(([^)]*)\)", _power_of_two),
    (r"(?:arange|shape|size)[^.]{0,80}power[- ]of[- ](?:2|two)[^(]{0,80}\(([^)]*)\)", _power_of_two),
    (
        r"maximum allowed elements|exceeds? (?:the )?maximum|numel|at most 1048576|number of elements",
        _too_many_elements,
    ),
    (r"module 'jax\.experimental\.pallas(?:\.\w+)?' has no attribute '(\w+)'", _gone),
    (r"cannot import name '(\w+)' from 'jax\.experimental\.pallas", _gone),
    (r"\bpl\.(\w+) was deprecated", _gone),
    (r"Unimplemented primitive in Pallas \w+ lowering: ?([\w-]+)", _primitive),
    (r"[^\n]*dot[^\n]*(?:at least|>=) ?16[^\n]*", _small_dot),
    (r"custom calls whose targets|platform for the specified backend cpu is different", _custom_call),
    (r"Cannot broadcast shapes for indexing", _index_shapes),
    (r"Only interpret mode is supported on CPU", _cpu_backend),
    (r"Attempted boolean conversion|concrete value|ConcretizationTypeError|TracerBoolConversion", _concrete),
    (r"captures constants|closed-over|captured constants|constants? .{0,40}pass them as inputs", _captured),
)


# Words


def _plain(trouble: Trouble) -> str:
    """The error itself, or, where it has no message, a sentence of ours."""
    first = " ".join(trouble.message.split())
    if not first:
        return f"{trouble.type or 'an exception'} without a message; this is often an assertion or an unsupported type."
    first = first if len(first) <= 600 else first[:600] + "..."
    return f"{trouble.type}: {first}" if trouble.type else first


def _where(trouble: Trouble, source: str) -> str:
    if trouble.line is None:
        return ""
    lines = source.splitlines()
    text = lines[trouble.line - 1].strip()[:160] if trouble.line <= len(lines) else ""
    return f" at line {trouble.line} (`{printable(text)}`)" if text else f" at line {trouble.line}"


def _constant(source: str, value: int) -> tuple[str, int] | None:
    """The module's constant in capitals that has this value, and its line."""
    for number, line in enumerate(source.splitlines(), start=1):
        found = re.match(r"([A-Z][A-Z0-9_]{0,60})\s*(?::\s*\w+\s*)?=\s*(\d{1,12})\s*(?:#.*)?$", line)
        if found and int(found.group(2)) == value:
            return found.group(1), number
    return None


def _memory(limits: TraceLimits, trouble: Trouble) -> str:
    return (
        f"Tracing `kernel` used more memory than it may ({limits.memory_bytes >> 20:,} MB of address space). Only "
        "shapes are needed to trace: make no large array at import or in `kernel`."
    )


def _quote(text: str) -> str:
    return f" It last printed: {text[:300]}" if text else ""


def _names(task: Task) -> str:
    return ", ".join(spec.name for spec in task.inputs)


def _spec(spec: ArraySpec) -> str:
    return f"{spec.dtype}{list(spec.shape)}"


def _of(size: Workload) -> str:
    inputs = ", ".join(_spec(spec) for spec in size.inputs)
    return f"{size.label} ({inputs})"
