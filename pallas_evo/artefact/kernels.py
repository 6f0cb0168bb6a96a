"""One Triton call: its configuration, and the Triton IR inside it.

The IR is parsed, its names are replaced, it is printed without locations, and what is parsed from that print is what
the rules walk: nothing that the printer would drop is ever believed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from jaxlib.mlir import ir

from pallas_evo.artefact import rules
from pallas_evo.artefact.dataflow import STORES, Effects, effects
from pallas_evo.artefact.parsing import Lines, attributes, context, parse, text_of, walk
from pallas_evo.artefact.refusal import Refused, clean, identifier
from pallas_evo.config import ArtefactLimits


@dataclass(frozen=True)
class Launch:
    """A call's configuration, checked."""

    name: str  # for people
    grid: tuple[int, int, int]
    num_warps: int
    num_stages: int


@dataclass
class KernelCode:
    """Validated Triton IR of one call."""

    launch: Launch
    symbol: str
    ttir: str
    module: ir.Module  # parsed from `ttir`
    lines: Lines
    operations: int


def read_config(call: Any, where: str, limits: ArtefactLimits) -> tuple[Launch, bytes]:
    """The launch and the IR's bytes from a custom call's backend configuration."""
    found = dict(attributes(call)).get("mhlo.backend_config")
    if not isinstance(found, ir.DictAttr):
        raise Refused("malformed", f"A Triton call{where} has no configuration.")
    config = {item.name: item.attr for item in found}
    for key in config:
        if key not in rules.CONFIG_KEYS and key not in rules.CONFIG_DROPPED:
            raise Refused(
                "forbidden_attribute", f"A Triton call's configuration{where} has the unknown key {clean(key)!r}."
            )
    missing = rules.CONFIG_KEYS - config.keys() - {"debug"}
    if missing:
        raise Refused("malformed", f"A Triton call's configuration{where} lacks {', '.join(sorted(missing))}.")

    def number(key: str) -> int:
        value = config[key]
        if not isinstance(value, ir.IntegerAttr) or str(value.type) != "i32":
            raise Refused("malformed", f"{key} of a Triton call{where} is not a 32-bit integer.")
        return int(value.value)

    if not isinstance(config["name"], ir.StringAttr) or not isinstance(config["ir"], ir.StringAttr):
        raise Refused("malformed", f"name or ir of a Triton call{where} is not a string.")
    if not isinstance(config.get("debug", ir.BoolAttr.get(False, context=context())), ir.BoolAttr):
        raise Refused("malformed", f"debug of a Triton call{where} is not a truth value.")
    grid = (number("grid_x"), number("grid_y"), number("grid_z"))
    for axis, size, most in zip("xyz", grid, ((1 << 31) - 1, 65535, 65535), strict=True):
        if not 1 <= size <= most:
            raise Refused(
                "launch",
                f"grid axis {axis} of the kernel{where} has {size} programs; 1 to {most} can be launched. "
                + ("Fold axes into the first one." if size > most else "Every grid axis needs at least one program."),
            )
    if grid[0] * grid[1] * grid[2] > limits.grid_programs:
        raise Refused(
            "launch", f"The kernel's grid{where} {grid} has over {limits.grid_programs} programs; use larger blocks."
        )
    warps, stages = number("num_warps"), number("num_stages")
    if not (1 <= warps <= limits.num_warps and warps & (warps - 1) == 0):
        raise Refused("launch", f"num_warps={warps}{where}: expected a power of two from 1 to {limits.num_warps}.")
    if not 1 <= stages <= limits.num_stages:
        raise Refused("launch", f"num_stages={stages}{where}: expected 1 to {limits.num_stages}.")
    name = identifier(clean(config["name"].value_bytes.decode("ascii", "replace"), 64))
    return Launch(name, grid, warps, stages), config["ir"].value_bytes


def read_kernel(call: Any, index: int, where: str, limits: ArtefactLimits) -> KernelCode:
    """Parse, rename, print and re-parse the IR of `call`."""
    launch, raw = read_config(call, where, limits)
    what = f"The Triton IR of kernel {launch.name}"
    if len(raw) > rules.MODULE_BYTES:
        raise Refused("malformed", f"{what} has {len(raw)} bytes; at most {rules.MODULE_BYTES} are read.")
    located = _parse_ir(raw, what, limits)
    lines = Lines(located, limits.operations)
    symbol = f"kernel_{index}"
    functions = [op.operation for op in located.body.operations]
    if len(functions) != 1 or functions[0].name != "tt.func":
        raise Refused(
            "forbidden_triton_op", f"{what} holds {len(functions)} top-level operations; one tt.func was expected."
        )
    with context(), ir.Location.unknown():
        if "sym_name" in located.operation.attributes:
            del located.operation.attributes["sym_name"]
        functions[0].attributes["sym_name"] = ir.StringAttr.get(symbol)
    ttir = text_of(located)
    module = parse(ttir, what)
    if text_of(module) != ttir:
        raise Refused("malformed", f"{what} does not read back as it was printed.")
    code = KernelCode(launch, symbol, ttir, module, lines, len(lines))
    _check_operations(code, limits)
    return code


def _parse_ir(raw: bytes, what: str, limits: ArtefactLimits) -> ir.Module:
    """Triton's own checks run while parsing; those on block sizes are a reason of their own."""
    try:
        return parse(raw, what)
    except Refused as refused:
        if "number of elements" in refused.message.lower():
            raise Refused(
                "block_size",
                f"{what} has a block that Triton refuses: every side must be a power of two, and a block may have at "
                "most "
                f"{limits.block_elements} elements. Take smaller blocks and a larger grid or a loop; round up and "
                "mask.",
            ) from refused
        raise


def _check_operations(code: KernelCode, limits: ArtefactLimits) -> None:
    """Operations, attributes and types by allow-list."""
    root = code.module.operation
    if list(attributes(root)):
        raise Refused("forbidden_attribute", f"The Triton module of kernel {code.launch.name} carries attributes.")
    operations = list(walk(root, limits.operations))
    if len(operations) != len(code.lines):
        raise Refused("malformed", f"The Triton IR of kernel {code.launch.name} does not read back as it was printed.")
    checked: set[str] = set()
    for place, operation in enumerate(operations):
        name = operation.name
        allowed = rules.TRITON.get(name)

        def where(place: int = place) -> str:
            return f" in kernel {code.launch.name}{code.lines.at(place)}"

        if allowed is None or (name == "tt.func") != (place == 0):
            advice = rules.TRITON_ADVICE.get(name, "it is not one that Pallas emits for a plain kernel")
            raise Refused("forbidden_triton_op", f"{clean(name)}{where()} is not allowed: {advice}.")
        above = operation.parent.name
        if above in rules.COMBINERS and not rules.combines(name):
            raise Refused(
                "forbidden_triton_op",
                f"{name}{where()} stands inside the function of a {above}, which may only do arithmetic.",
            )
        for key, value in attributes(operation):
            pattern = allowed.get(key) or rules.TRITON_HINTS.get(key)
            if pattern is None or not rules.matches(pattern, value):
                shown = f"{clean(key, 40)} = {clean(value, 60)}"
                raise Refused("forbidden_attribute", f"{name}{where()} carries {shown}, which no honest export has.")
        if name == "tt.extern_elementwise":
            called = ir.StringAttr(operation.attributes["symbol"]).value
            if called not in rules.LIBDEVICE:
                raise Refused(
                    "forbidden_triton_op",
                    f"The external function {clean(called, 40)}{where()} is not one of libdevice's that Pallas calls.",
                )
        if name == "tt.bitcast":
            _check_bitcast(operation, where())
        arguments = [value for region in operation.regions for block in region.blocks for value in block.arguments]
        for value in (*operation.results, *arguments):
            text = str(value.type)
            if text not in checked:
                _check_type(text, where(), limits)
                checked.add(text)


def _check_bitcast(operation: Any, where: str) -> None:
    """A pointer may be cast only to one of the same element width: bounds are counted in elements."""
    types = [rules.TRITON_TYPE.fullmatch(str(value.type)) for value in (operation.operands[0], operation.results[0])]
    pointees = [found and (found.group(2) or found.group(4)) for found in types]
    if any(pointees):
        widths = [rules.ELEMENT_BYTES.get(pointee or "") for pointee in pointees]
        if None in widths or widths[0] != widths[1]:
            raise Refused(
                "forbidden_triton_op",
                f"tt.bitcast{where} changes the width of what a pointer points to; cast the loaded value.",
            )


def _check_type(text: str, where: str, limits: ArtefactLimits) -> None:
    found = rules.TRITON_TYPE.fullmatch(text)
    if found is None:
        raise Refused("forbidden_triton_op", f"The type {clean(text, 60)}{where} is not one of a plain kernel.")
    dims, *elements = found.groups()
    element = next(item for item in elements if item)
    if element not in rules.ELEMENT_BYTES or element.startswith("u"):
        raise Refused(
            "forbidden_triton_op", f"The element type {clean(element, 40)}{where} is not one of a plain kernel."
        )
    if dims:
        sizes = [int(size) for size in dims[:-1].split("x")]
        count = 1
        for size in sizes:
            count *= size
        if count > limits.block_elements:
            raise Refused(
                "block_size",
                f"A block of {clean(dims[:-1], 60)} = {count} elements{where} is over Triton's "
                f"{limits.block_elements}; "
                "take smaller blocks and a larger grid or a loop.",
            )
        if any(size < 1 or size & (size - 1) for size in sizes):
            raise Refused(
                "block_size",
                f"A block of {clean(dims[:-1], 60)} elements{where}: every side must be a power of two; round up and "
                "mask.",
            )


def kernel_effects(
    code: KernelCode, operand_types: Sequence[str], result_types: Sequence[str], aliases: dict[int, int], where: str
) -> Effects:
    """Hold the kernel's arguments against the call's buffers, and follow its loads and stores.

    `aliases` maps output -> operand sharing its buffer. Stores may go to outputs and to those operands.
    """
    operations = list(walk(code.module.operation, code.operations))
    function, inner = operations[0], operations[1:]
    blocks = list(function.regions[0].blocks)
    if len(blocks) != 1:
        raise Refused("malformed", f"Kernel {code.launch.name}{where} has {len(blocks)} blocks; one was expected.")
    function_type = ir.FunctionType(ir.TypeAttr(function.attributes["function_type"]).value)
    arguments = [str(argument.type) for argument in blocks[0].arguments]
    if list(function_type.results) or [str(item) for item in function_type.inputs] != arguments:
        raise Refused("malformed", f"Kernel {code.launch.name}{where} has a signature that its body does not have.")
    # MLIR's Triton integers carry no sign.
    expected = [f"!tt.ptr<{element.removeprefix('u')}>" for element in (*operand_types, *result_types)]
    if arguments != expected:
        raise Refused(
            "malformed",
            f"Kernel {code.launch.name}{where} takes ({clean(', '.join(arguments), 150)}) but its call passes "
            "buffers of "
            f"({clean(', '.join(expected), 150)}).",
        )
    found = effects(function, inner, len(operand_types), aliases)
    storable = {len(operand_types) + index for index in range(len(result_types))} | set(aliases.values())
    stored = 0
    for access in found.accesses:
        at = f" in kernel {code.launch.name}{code.lines.at(access.place + 1)}"
        if not access.bases:
            raise Refused(
                "input_store", f"{access.operation}{at} goes through a pointer whose buffer cannot be followed."
            )
        if access.operation in STORES:
            stored |= access.bases
            for index in range(len(arguments)):
                if access.bases >> index & 1 and index not in storable:
                    raise Refused(
                        "input_store",
                        f"{access.operation}{at} writes into operand {index} of the kernel; write only to output "
                        "Refs, or "
                        "alias the operand to an output with input_output_aliases and pass zeros or an earlier result.",
                    )
    for index in range(len(result_types)):
        reachable = 1 << (len(operand_types) + index)
        if index in aliases:
            reachable |= 1 << aliases[index]
        if not stored & reachable:
            raise Refused(
                "no_store",
                f"Kernel {code.launch.name}{where} never stores its output {index}; write every element of every "
                "output Ref.",
            )
    return found
