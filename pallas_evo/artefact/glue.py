"""What surrounds the kernels: every function of the module followed from `main`, with what each value is made of.

A value knows which inputs it depends on at all (`data`), which of them got there without passing a kernel (`raw`) and
which passed one (`kernel`). Calls are followed each time they are made, so that what is counted is what runs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from jaxlib.mlir import ir

from pallas_evo.artefact import rules
from pallas_evo.artefact.dataflow import Effects
from pallas_evo.artefact.kernels import KernelCode, kernel_effects
from pallas_evo.artefact.parsing import Lines, attributes
from pallas_evo.artefact.refusal import Refused, clean
from pallas_evo.config import ArtefactLimits
from pallas_evo.types import ArraySpec, Workload

NONE: frozenset[int] = frozenset()


@dataclass(frozen=True)
class Made:
    """Where a value comes from. `through`: all of it that is not constant came out of a kernel."""

    data: frozenset[int] = NONE
    raw: frozenset[int] = NONE
    kernel: frozenset[int] = NONE
    through: bool = False


def joined(values: Sequence[Made]) -> Made:
    return Made(
        frozenset().union(*(value.data for value in values)),
        frozenset().union(*(value.raw for value in values)),
        frozenset().union(*(value.kernel for value in values)),
        any(value.through for value in values),
    )


@dataclass(frozen=True)
class Array:
    """Shape, element type and size of a tensor type."""

    shape: tuple[int, ...]
    element: str

    @property
    def elements(self) -> int:
        count = 1
        for size in self.shape:
            count *= size
        return count

    @property
    def bytes(self) -> int:
        return self.elements * rules.ELEMENT_BYTES[self.element]


def array(kind: Any, where: str = "") -> Array:
    """The array that a value of this MLIR type is."""
    text = str(kind)
    found = rules.GLUE_TYPE.fullmatch(text) if len(text) < 200 else None
    if found is None or found.group(2) not in rules.ELEMENT_BYTES:
        raise Refused(
            "forbidden_op", f"A value of type {clean(text, 60)}{where}: only plain arrays of numbers are allowed."
        )
    made = Array(tuple(int(size) for size in found.group(1).split("x") if size), found.group(2))
    if made.elements > rules.TENSOR_ELEMENTS:
        raise Refused(
            "program_size",
            f"An array of {clean(text, 60)}{where} has over {rules.TENSOR_ELEMENTS} elements; work in smaller pieces.",
        )
    return made


def spec_text(spec: ArraySpec) -> str:
    return "x".join([*map(str, spec.shape), rules.NUMPY_TO_MLIR.get(spec.dtype, spec.dtype)])


@dataclass
class Program:
    """One module under validation, and what has been counted so far."""

    functions: Mapping[str, Any]
    places: Mapping[Any, int]
    lines: Lines
    kernels: Mapping[Any, KernelCode]  # by custom call
    workload: Workload
    limits: ArtefactLimits
    moved_bytes: int = 0
    constant_bytes: int = 0
    operations: int = 0
    calls: int = 0
    called: set[str] = field(default_factory=set)
    _effects: dict[Any, Effects] = field(default_factory=dict)

    def where(self, operation: Any) -> str:
        return self.lines.at(self.places.get(operation))

    @property
    def io_bytes(self) -> int:
        specs = (*self.workload.inputs, self.workload.output)
        return sum(Array(spec.shape, rules.NUMPY_TO_MLIR[spec.dtype]).bytes for spec in specs)

    def check(self) -> None:
        """Follow `main`, and hold its outputs against the rules on what must pass a kernel."""
        inputs = len(self.workload.inputs)
        arguments = [Made(frozenset({i}), frozenset({i})) for i in range(inputs)]
        (output,) = self.run("main", arguments)
        if output.raw:
            which = ", ".join(f"input {i}" for i in sorted(output.raw))
            raise Refused(
                "not_pallas",
                f"Part of the output is {which}, moved around the Pallas kernels; let a kernel write the whole output.",
            )
        if not output.through:
            raise Refused(
                "not_pallas",
                "The output does not come out of a Pallas Triton kernel; compute it inside pl.pallas_call with "
                "plgpu.CompilerParams.",
            )
        missing = [i for i in range(inputs) if i not in output.kernel]
        if missing:
            which = ", ".join(f"input {i} ({spec_text(self.workload.inputs[i])})" for i in missing)
            raise Refused(
                "not_pallas",
                f"No Pallas kernel carries {which} to the output; load it in a kernel and use what was loaded.",
            )

    def run(self, name: str, arguments: Sequence[Made], depth: int = 0) -> list[Made]:
        """The values that a function returns for these arguments."""
        if depth > rules.NESTING:
            raise Refused("program_size", f"Functions call each other deeper than {rules.NESTING} levels, or for ever.")
        self.called.add(name)
        (block,) = self.functions[name].regions[0].blocks
        known: dict[Any, Made] = dict(zip(block.arguments, arguments, strict=True))
        for view in block.operations:
            operation = view.operation
            self.operations += 1
            if self.operations > self.limits.operations:
                raise Refused(
                    "program_size",
                    f"The program runs more than {self.limits.operations} operations outside its kernels.",
                )
            operands = [known[value] for value in operation.operands]
            if operation.name == "func.return":
                return operands
            if operation.name == "func.call":
                made = self.run(callee(operation), operands, depth + 1)
            elif operation.name == "stablehlo.custom_call":
                made = self.call_kernel(operation, operands)
            elif operation.name == "stablehlo.optimization_barrier":
                made = operands
            else:
                made = [self.glue(operation, operands)]
            known.update(zip(operation.results, made, strict=True))
        raise Refused("malformed", "A function does not return.")

    def glue(self, operation: Any, operands: Sequence[Made]) -> Made:
        """One operation that moves or computes."""
        name, where = operation.name, self.where(operation)
        kinds = [array(value.type, where) for value in operation.operands]
        result = array(operation.results[0].type, where)
        made = joined(operands)
        if name in rules.CONSTANTS or name in rules.COMPUTES:
            if made.data:
                raise Refused(
                    "glue_compute",
                    f"{name}{where} computes with a value that depends on {inputs_text(made.data)}; do it inside a "
                    "Pallas kernel. Outside, such values may only be moved or converted to a float type.",
                )
            self.constant_bytes += constant_size(operation, result)
            if self.constant_bytes > self.limits.glue_constant_bytes:
                raise Refused(
                    "constant_size",
                    f"Constants and what is computed from them outside the kernels reach {self.constant_bytes} "
                    f"bytes{where}; "
                    f"at most {self.limits.glue_constant_bytes} are allowed. Compute them inside the kernel.",
                )
            return made
        if name == "stablehlo.convert" and made.data and result.element not in rules.FLOATS:
            raise Refused(
                "glue_compute",
                f"stablehlo.convert{where} turns {kinds[0].element} that depends on {inputs_text(made.data)} into "
                f"{result.element}; outside the kernels only conversions to a float type are allowed.",
            )
        if name == "stablehlo.dynamic_slice" and joined(operands[1:]).data:
            raise Refused(
                "glue_compute",
                f"stablehlo.dynamic_slice{where} starts where an input says; load from there inside the kernel.",
            )
        if name in rules.MOVES:
            self.moved_bytes += result.bytes
            if self.moved_bytes > self.limits.moved_ratio * self.io_bytes:
                raise Refused(
                    "glue_bytes",
                    f"{self.moved_bytes} bytes are moved outside the kernels{where}; at most "
                    f"{self.limits.moved_ratio:g} "
                    f"times the task's {self.io_bytes} input and output bytes may be. Let the kernel index instead.",
                )
        return made

    def call_kernel(self, call: Any, operands: Sequence[Made]) -> list[Made]:
        """What the outputs of a Triton call are made of; checks aliases and the kernel's stores."""
        where, code = self.where(call), self.kernels[call]
        self.calls += 1
        if self.calls > self.limits.kernels:
            raise Refused(
                "program_size",
                f"More than {self.limits.kernels} kernels are launched; fuse them, or use a larger grid.",
            )
        kinds = [array(value.type, where) for value in call.operands]
        results = [array(value.type, where) for value in call.results]
        aliases = read_aliases(call, kinds, results, where)
        for output, operand in aliases.items():
            if operands[operand].raw:
                raise Refused(
                    "input_alias",
                    f"Output {output} of the kernel{where} aliases {inputs_text(operands[operand].raw)}; alias only "
                    "values made inside the program: zeros, or what an earlier kernel returned.",
                )
        found = self._effects.get(call)
        if found is None:
            elements = [kind.element for kind in kinds], [kind.element for kind in results]
            found = self._effects[call] = kernel_effects(code, *elements, aliases, where)
        made = []
        for depends in found.depends:
            used = joined([value for i, value in enumerate(operands) if depends >> i & 1])
            made.append(Made(used.data, NONE, used.data, True))
        return made


def inputs_text(inputs: frozenset[int]) -> str:
    return "input " + ", ".join(str(i) for i in sorted(inputs))


def callee(operation: Any) -> str:
    return ir.FlatSymbolRefAttr(operation.attributes["callee"]).value


def constant_size(operation: Any, result: Array) -> int:
    """Bytes that count as constants: a splat is one element, however large the array."""
    if operation.name == "stablehlo.constant":
        value = operation.attributes["value"]
        if isinstance(value, ir.DenseElementsAttr) and value.is_splat:
            return rules.ELEMENT_BYTES[result.element]
    return result.bytes


def read_aliases(call: Any, operands: Sequence[Array], results: Sequence[Array], where: str) -> dict[int, int]:
    """Output -> operand of a call's `output_operand_aliases`."""
    found = dict(attributes(call)).get("output_operand_aliases")
    aliases: dict[int, int] = {}
    for item in found if isinstance(found, ir.ArrayAttr) else ():
        parts = rules.ALIAS.fullmatch(str(item))
        if parts is None:
            raise Refused("malformed", f"The alias {clean(item, 80)}{where} cannot be read.")
        output, operand = int(parts.group(1) or 0), int(parts.group(2))
        if output >= len(results) or operand >= len(operands):
            raise Refused(
                "malformed", f"An alias{where} names output {output} and operand {operand}, which do not exist."
            )
        if output in aliases or operand in aliases.values():
            raise Refused("malformed", f"Output {output} or operand {operand}{where} is aliased twice.")
        if operands[operand] != results[output]:
            raise Refused("malformed", f"Output {output} aliases operand {operand}{where}, which has another type.")
        aliases[output] = operand
    return aliases
