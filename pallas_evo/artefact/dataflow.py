"""What a kernel does to memory: which arguments it stores to, and which operands each of its outputs depends on.

A graph of values, with one bit per argument of the kernel. `bases` flows from the pointer arguments along pointers
and says where a pointer may point; `taint` flows from loads along everything, through memory and through control, and
says which operands a value depends on. Both are least fixed points by worklist: a node changes at most once per bit.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from pallas_evo.artefact.refusal import Refused
from pallas_evo.artefact.rules import POINTER_OPERATIONS

STORES = frozenset({"tt.store", "tt.atomic_rmw", "tt.atomic_cas"})
REGIONS = frozenset({"scf.for", "scf.if", "scf.while", "tt.reduce", "tt.scan"})
DECIDES = {"scf.for": slice(0, 3), "scf.if": slice(0, 1)}
"""Operands that decide how often a region runs; `scf.condition` does for `scf.while`."""
LOADS = frozenset({"tt.load", "tt.atomic_rmw", "tt.atomic_cas"})


@dataclass
class _Graph:
    """Nodes are numbers; `edges[a]` lists what takes on a's bits."""

    edges: dict[int, list[int]] = field(default_factory=lambda: defaultdict(list))
    bits: dict[int, int] = field(default_factory=lambda: defaultdict(int))

    def solve(self) -> None:
        waiting = [node for node, bits in self.bits.items() if bits]
        while waiting:
            node = waiting.pop()
            bits = self.bits[node]
            for after in self.edges.get(node, ()):
                if bits & ~self.bits[after]:
                    self.bits[after] |= bits
                    waiting.append(after)


@dataclass(frozen=True)
class Access:
    """One load, store or atomic: its place in the walk, its operation's name and the arguments it may touch."""

    place: int
    operation: str
    bases: int


@dataclass(frozen=True)
class Effects:
    """`depends[j]` has bit i set where output j depends on operand i."""

    accesses: tuple[Access, ...]
    depends: tuple[int, ...]


class _Values:
    """Numbers for SSA values, for the control of blocks and for the memory behind arguments."""

    def __init__(self) -> None:
        self._numbers: dict[Any, int] = {}
        self._next = 0

    def fresh(self) -> int:
        self._next += 1
        return self._next

    def of(self, value: Any) -> int:
        number = self._numbers.get(value)
        if number is None:
            number = self._numbers[value] = self.fresh()
        return number


def is_pointer(value: Any) -> bool:
    return "!tt.ptr" in str(value.type)


def effects(function: Any, operations: Sequence[Any], operands: int, aliases: dict[int, int]) -> Effects:
    """Follow every pointer of a kernel and every value that it loads.

    Args:
        function: the `tt.func`.
        operations: its operations in walk order (places are positions here).
        operands: how many of the arguments are operands; the others are the outputs.
        aliases: output -> operand that shares its memory.
    """
    arguments = list(function.regions[0].blocks[0].arguments)
    values = _Values()
    pointers, taints = _Graph(), _Graph()
    for index, argument in enumerate(arguments):
        pointers.bits[values.of(argument)] = 1 << index
    memory = [values.fresh() for _ in arguments]
    for index in range(operands):
        taints.bits[memory[index]] = 1 << index
    for output, operand in aliases.items():
        for a, b in ((operand, operands + output), (operands + output, operand)):
            taints.edges[memory[a]].append(memory[b])
    control = _control(function, operations, values, taints)

    accesses: list[tuple[int, Any, int]] = []
    for place, operation in enumerate(operations):
        name = operation.name
        ins = [values.of(value) for value in operation.operands]
        outs = [values.of(value) for value in operation.results]
        points = [is_pointer(value) for value in operation.results]
        if any(points) and name not in POINTER_OPERATIONS:
            raise Refused("input_store", f"{name} inside a kernel gives a pointer whose buffer cannot be followed.")
        if name not in REGIONS:
            for a in ins:
                for b in outs:
                    taints.edges[a].append(b)
            for value, a in zip(operation.operands, ins, strict=True):
                if is_pointer(value):
                    for b, followed in zip(outs, points, strict=True):
                        if followed:
                            pointers.edges[a].append(b)
        if name in LOADS or name in STORES:
            accesses.append((place, operation, ins[0]))
        _regions(operation, values, pointers, taints)
    pointers.solve()

    found = []
    for place, operation, pointer in accesses:
        bases = pointers.bits[pointer]
        found.append(Access(place, operation.name, bases))
        outs = [values.of(value) for value in operation.results]
        ins = [values.of(value) for value in operation.operands]
        for index in range(len(arguments)):
            if bases >> index & 1:
                if operation.name in LOADS:
                    taints.edges[memory[index]].extend(outs)
                if operation.name in STORES:
                    for a in (*ins, control[place]):
                        taints.edges[a].append(memory[index])
    taints.solve()
    # What an aliased output held before is the operand's: `depends` counts it, since elements not stored keep it.
    return Effects(tuple(found), tuple(taints.bits[node] for node in memory[operands:]))


def _control(function: Any, operations: Sequence[Any], values: _Values, taints: _Graph) -> list[int]:
    """For each operation the node of what decides whether it runs."""
    inside: dict[Any, int] = {function: values.fresh()}
    nodes = []
    for operation in operations:
        above = inside[operation.parent]
        nodes.append(above)
        if len(operation.regions):
            own = inside[operation] = values.fresh()
            taints.edges[above].append(own)
            for value in list(operation.operands)[DECIDES.get(operation.name, slice(0, 0))]:
                taints.edges[values.of(value)].append(own)
            for result in operation.results:
                taints.edges[own].append(values.of(result))
        if operation.name == "scf.condition":
            taints.edges[values.of(operation.operands[0])].append(above)
    return nodes


def _regions(operation: Any, values: _Values, pointers: _Graph, taints: _Graph) -> None:
    """Edges into the block arguments of `operation` and out of its yields."""

    def link(sources: Sequence[Any], targets: Sequence[Any]) -> None:
        if len(sources) != len(targets):
            raise Refused("malformed", f"{operation.name} passes {len(sources)} values where {len(targets)} are taken.")
        for source, target in zip(sources, targets, strict=True):
            a, b = values.of(source), values.of(target)
            taints.edges[a].append(b)
            pointers.edges[a].append(b)

    name = operation.name
    if name not in REGIONS:
        if len(operation.regions):
            raise Refused("malformed", f"{name} has a region; none was expected.")
        return
    blocks = []
    for region in operation.regions:
        held = list(region.blocks)
        if len(held) > 1:
            raise Refused("malformed", f"{name} has a region of {len(held)} blocks; one was expected.")
        blocks += held
    operands, results = list(operation.operands), list(operation.results)
    if name == "scf.for":
        link(operands[:1], list(blocks[0].arguments)[:1])
        for value in operands[1:3]:
            taints.edges[values.of(value)].append(values.of(blocks[0].arguments[0]))
        carried = list(blocks[0].arguments)[1:]
        last = list(_last(blocks[0], "scf.yield", operation).operands)
        link(operands[3:], carried)
        link(last, carried)
        link(operands[3:], results)
        link(last, results)
    elif name == "scf.if":
        for block in blocks:
            link(list(_last(block, "scf.yield", operation).operands), results)
    elif name == "scf.while":
        before, after = blocks
        condition = list(_last(before, "scf.condition", operation).operands)
        link(operands, list(before.arguments))
        link(list(_last(after, "scf.yield", operation).operands), list(before.arguments))
        link(condition[1:], list(after.arguments))
        link(condition[1:], results)
        for value in results:
            taints.edges[values.of(condition[0])].append(values.of(value))
    else:
        returned = list(_last(blocks[0], f"{name}.return", operation).operands)
        for argument in blocks[0].arguments:
            for value in operands:
                taints.edges[values.of(value)].append(values.of(argument))
        for result in results:
            for value in returned:
                taints.edges[values.of(value)].append(values.of(result))


def _last(block: Any, name: str, parent: Any) -> Any:
    operations = list(block.operations)
    if not operations or operations[-1].operation.name != name:
        raise Refused("malformed", f"A region of {parent.name} does not end in {name}.")
    return operations[-1].operation
