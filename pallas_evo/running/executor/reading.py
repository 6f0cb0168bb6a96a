"""Reads StableHLO and the Triton IR inside it into plain Python: numbered values, instructions, blocks.

The executor walks a kernel's body once per chunk of the grid, so everything that asks MLIR a question happens here,
once. MLIR is reached through `jaxlib.mlir` alone: importing jax costs five times what a small kernel's run does.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import ml_dtypes
import numpy as np
from jaxlib.mlir import ir

from pallas_evo.errors import UnknownOperation

TRITON_CALL = "__gpu$xla.gpu.triton"
"""The custom call that carries a Pallas kernel (`plgpu.CUSTOM_CALL_TARGET_NAME` where JAX has that name)."""

DTYPES: dict[str, np.dtype[Any]] = {
    "i1": np.dtype(np.bool_),
    "i8": np.dtype(np.int8),
    "i16": np.dtype(np.int16),
    "i32": np.dtype(np.int32),
    "i64": np.dtype(np.int64),
    "index": np.dtype(np.int64),
    "ui8": np.dtype(np.uint8),
    "ui16": np.dtype(np.uint16),
    "ui32": np.dtype(np.uint32),
    "ui64": np.dtype(np.uint64),
    "f16": np.dtype(np.float16),
    "bf16": np.dtype(ml_dtypes.bfloat16),
    "f32": np.dtype(np.float32),
    "f64": np.dtype(np.float64),
    "f8E4M3FN": np.dtype(ml_dtypes.float8_e4m3fn),
    "f8E5M2": np.dtype(ml_dtypes.float8_e5m2),
    "f8E4M3FNUZ": np.dtype(ml_dtypes.float8_e4m3fnuz),
    "f8E5M2FNUZ": np.dtype(ml_dtypes.float8_e5m2fnuz),
    "f8E4M3B11FNUZ": np.dtype(ml_dtypes.float8_e4m3b11fnuz),
}
"""MLIR element type -> NumPy dtype. Triton's integers are signless: they are held signed, unsigned work views them."""


@dataclass(frozen=True, slots=True)
class TensorType:
    """Shape and element type of one value. `pointer` says that the elements are pointers to `dtype`."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    pointer: bool = False


@dataclass(slots=True)
class Instruction:
    """One operation: values are numbers, attributes plain Python values.

    `dying` are the values that nothing after this instruction reads, so that the machine can drop them. `handler` is
    filled in by the machine.
    """

    name: str
    operands: tuple[int, ...]
    results: tuple[int, ...]
    operand_types: tuple[TensorType, ...]
    result_types: tuple[TensorType, ...]
    attributes: dict[str, Any]
    regions: tuple[Block, ...] = ()
    dying: tuple[int, ...] = ()
    handler: Callable[..., Any] | None = None


@dataclass(slots=True)
class Block:
    """Straight-line code: `outputs` are the operands of the terminator, whose name is `terminator`."""

    arguments: tuple[int, ...]
    argument_types: tuple[TensorType, ...]
    instructions: list[Instruction] = field(default_factory=list)
    terminator: str = ""
    outputs: tuple[int, ...] = ()

    def walk(self) -> Iterator[Instruction]:
        """Every instruction, those inside regions too."""
        for instruction in self.instructions:
            yield instruction
            for region in instruction.regions:
                yield from region.walk()


@dataclass(slots=True)
class KernelCode:
    """One Triton call: its body, its launch grid, and how many values the body numbers."""

    name: str
    grid: tuple[int, int, int]
    body: Block
    values: int


@dataclass(slots=True)
class ProgramCode:
    """A StableHLO module: functions by name (`main` is the entry). A Triton call's code is its attribute `kernel`."""

    functions: dict[str, Block]
    values: int


class _Context(ir.Context):  # type: ignore[misc]  # the bindings are untyped
    """An MLIR context with the dialects that we name, instead of all that are linked into jaxlib."""

    def __init__(self) -> None:
        super(ir.Context, self).__init__()  # ir.Context.__init__ loads every dialect


def new_context() -> ir.Context:
    """A context that reads StableHLO (with CHLO) and Triton IR."""
    from jaxlib.mlir._mlir_libs import _jax_mlir_ext
    from jaxlib.mlir.dialects import chlo, stablehlo
    from jaxlib.triton import dialect as triton

    context = _Context()
    registry = ir.DialectRegistry()
    _jax_mlir_ext.register_dialects(registry)
    context.append_dialect_registry(registry)
    context.load_all_available_dialects()
    chlo.register_dialect(context)
    stablehlo.register_dialect(context)
    triton.register_dialect(context)
    return context


def read_program(module: str | bytes) -> ProgramCode:
    """Read a StableHLO module (text or bytecode) and every Triton module inside it.

    Raises:
        UnknownOperation: it holds a type or a form that the executor does not know. The validator has passed what
            comes here, so a module that cannot be parsed at all is our failure too.
    """
    try:
        with new_context(), ir.Location.unknown():
            reader = _Reader()
            functions = {}
            for operation in ir.Module.parse(module).body.operations:
                operation = operation.operation
                if operation.name != "func.func":
                    raise UnknownOperation(f"the module holds {operation.name}; the executor knows func.func there.")
                name = ir.StringAttr(operation.attributes["sym_name"]).value
                functions[name] = reader.block(_only_block(operation, 0))
            for block in functions.values():
                _prune(block)
            return ProgramCode(functions, reader.count)
    except ir.MLIRError as error:
        raise UnknownOperation(f"MLIR cannot read the module: {str(error).splitlines()[0]}") from error


def _read_kernel(attributes: dict[str, Any]) -> KernelCode:
    config = ir.DictAttr(attributes["mhlo.backend_config"])

    def number(key: str) -> int:
        return int(ir.IntegerAttr(config[key]).value)

    name = ir.StringAttr(config["name"]).value
    module = ir.Module.parse(ir.StringAttr(config["ir"]).value_bytes)
    functions = [operation.operation for operation in module.body.operations]
    if len(functions) != 1 or functions[0].name != "tt.func":
        raise UnknownOperation(f"kernel {name} is {len(functions)} operations; expected one tt.func.")
    reader = _Reader()
    body = reader.block(_only_block(functions[0], 0))
    _prune(body)
    return KernelCode(name, (number("grid_x"), number("grid_y"), number("grid_z")), body, reader.count)


class _Reader:
    """Turns MLIR blocks into ours, numbering values in the order of their definition."""

    def __init__(self) -> None:
        self.count = 0
        self.numbers: dict[ir.Value, int] = {}

    def number(self, value: ir.Value) -> int:
        self.numbers[value] = self.count
        self.count += 1
        return self.count - 1

    def block(self, block: ir.Block) -> Block:
        read = Block(
            tuple(self.number(argument) for argument in block.arguments),
            tuple(read_type(argument.type) for argument in block.arguments),
        )
        for operation in block.operations:
            operation = operation.operation
            operands = tuple(self.numbers[operand] for operand in operation.operands)
            if operation.name in TERMINATORS:
                read.terminator, read.outputs = operation.name, operands
                break
            regions = tuple(
                self.block(_only_block(operation, index))
                for index in range(len(operation.regions))
                if len(operation.regions[index].blocks)
            )
            read.instructions.append(
                Instruction(
                    operation.name,
                    operands,
                    tuple(self.number(result) for result in operation.results),
                    tuple(read_type(operand.type) for operand in operation.operands),
                    tuple(read_type(result.type) for result in operation.results),
                    _attributes(operation),
                    regions,
                )
            )
        return read


TERMINATORS = frozenset(
    {
        "func.return",
        "stablehlo.return",
        "tt.return",
        "tt.reduce.return",
        "tt.scan.return",
        "scf.yield",
        "scf.condition",
    }
)


def _only_block(operation: ir.Operation, region: int) -> ir.Block:
    blocks = operation.regions[region].blocks
    if len(blocks) != 1:
        raise UnknownOperation(f"{operation.name} has a region of {len(blocks)} blocks; the executor knows one.")
    return blocks[0]


def read_type(read: ir.Type) -> TensorType:
    """The type of a value.

    Raises:
        UnknownOperation: an element type that has no NumPy dtype here.
    """
    shape: tuple[int, ...] = ()
    if isinstance(read, ir.RankedTensorType):
        shape, read = tuple(read.shape), read.element_type
    text = str(read)
    pointer = re.fullmatch(r"!tt\.ptr<(\w+)(?:, \d+)?>", text)
    dtype = DTYPES.get(pointer.group(1) if pointer else text)
    if dtype is None:
        raise UnknownOperation(f"the executor has no NumPy type for {text}.")
    return TensorType(shape, dtype, pointer is not None)


def _attributes(operation: ir.Operation) -> dict[str, Any]:
    attributes = {name: operation.attributes[name] for name in _names(operation)}
    if operation.name == "stablehlo.custom_call":
        target = ir.StringAttr(attributes["call_target_name"]).value
        if target != TRITON_CALL:
            raise UnknownOperation(f"the executor knows no custom call {target}.")
        return {"kernel": _read_kernel(attributes), "aliases": _aliases(attributes), **_layouts(attributes)}
    if operation.name in ("arith.constant", "stablehlo.constant"):
        return {"value": _constant(attributes["value"], read_type(operation.results[0].type))}
    return {name: _plain(name, attribute) for name, attribute in attributes.items()}


def _names(operation: ir.Operation) -> list[str]:
    # JAX 0.10 iterates over NamedAttribute, later ones may give the names alone.
    return [entry if isinstance(entry, str) else entry.name for entry in operation.attributes]


def _aliases(attributes: dict[str, Any]) -> dict[int, int]:
    """Result -> operand whose buffer it takes over."""
    from jaxlib.mlir.dialects import stablehlo

    found = {}
    for entry in ir.ArrayAttr(attributes["output_operand_aliases"]) if "output_operand_aliases" in attributes else ():
        alias = stablehlo.OutputOperandAlias(entry)
        if alias.operand_tuple_indices or len(alias.output_tuple_indices) > 1:
            raise UnknownOperation(f"the executor knows no alias {entry}.")
        found[(list(alias.output_tuple_indices) or [0])[0]] = alias.operand_index
    return found


def _layouts(attributes: dict[str, Any]) -> dict[str, Any]:
    """Nothing, once every layout is seen to be row-major."""
    for name in ("operand_layouts", "result_layouts"):
        for entry in ir.ArrayAttr(attributes[name]) if name in attributes else ():
            order = [int(axis) for axis in np.asarray(entry).reshape(-1)]
            if order != list(range(len(order)))[::-1]:
                raise UnknownOperation(f"{name} {entry}: the executor knows row-major arrays only.")
    return {}


def _plain(name: str, attribute: ir.Attribute) -> Any:
    """An attribute as a Python value; enumerations by their upper-case names; what has no plain form as text."""
    from jaxlib.triton import dialect as triton

    if isinstance(attribute, ir.BoolAttr | ir.FloatAttr | ir.StringAttr):
        return attribute.value
    if isinstance(attribute, ir.IntegerAttr):
        kind = {"atomic_rmw_op": "RMWOp", "inputPrecision": "InputPrecision"}.get(name)
        return getattr(triton, kind)(attribute.value).name.upper() if kind else int(attribute.value)
    if isinstance(attribute, ir.FlatSymbolRefAttr):
        return attribute.value
    if isinstance(attribute, ir.DenseI32ArrayAttr | ir.DenseI64ArrayAttr | ir.DenseBoolArrayAttr):
        return tuple(attribute)
    if isinstance(attribute, ir.ArrayAttr):
        return tuple(_plain("", entry) for entry in attribute)
    return str(attribute)


def _constant(attribute: ir.Attribute, read: TensorType) -> np.ndarray:
    """A constant's value, in the shape of its type; a splat keeps axes of size 1."""
    if isinstance(attribute, ir.BoolAttr | ir.IntegerAttr | ir.FloatAttr):
        return _scalar(attribute, read.dtype)
    dense = attribute if hasattr(attribute, "is_splat") else ir.DenseElementsAttr(attribute)
    if dense.is_splat:
        return _scalar(dense.get_splat_value(), read.dtype).reshape((1,) * len(read.shape))
    try:
        return np.array(dense).astype(read.dtype, copy=False).reshape(read.shape)
    except (TypeError, ValueError):  # no buffer for bfloat16 and the 8-bit floats
        return _constant_from_text(str(dense), read)


def _scalar(attribute: ir.Attribute, dtype: np.dtype[Any]) -> np.ndarray:
    value = attribute.value
    if dtype.kind in "iu":  # signless attributes read signed, ui ones unsigned
        value = int(value) % (1 << 8 * dtype.itemsize)
        return np.array(value, f"u{dtype.itemsize}").view(dtype)
    return np.array(value).astype(dtype)


def _constant_from_text(text: str, read: TensorType) -> np.ndarray:
    bits = np.dtype(f"u{read.dtype.itemsize}")
    body = text[text.index("<") + 1 : text.rindex("> :")]
    if body.startswith('"0x'):
        return np.frombuffer(bytes.fromhex(body[3:-1]), read.dtype).reshape(read.shape)
    numbers = np.array(ast.literal_eval(body), object).reshape(-1)
    made = [  # an infinity or a NaN is printed as its bits
        np.array(number, bits).view(read.dtype) if isinstance(number, int) else np.array(number).astype(read.dtype)
        for number in numbers
    ]
    return np.array(made, read.dtype).reshape(read.shape)


HAS_EFFECT = frozenset(
    {"tt.store", "tt.atomic_rmw", "tt.atomic_cas", "tt.print", "tt.assert", "gpu.barrier"}
    | {"scf.for", "scf.while", "scf.if"}
)


def _prune(block: Block, live: set[int] | None = None) -> set[int]:
    """Drop what no one reads, and note where each value is read last; returns the values read here or later.

    Dropping matters for the verdict: before JAX 0.12 `ref[...] = x` lowers to a load of the old value that nothing
    uses, then a store. Triton drops such loads, and reading an output that is not yet written is no fault in them.
    """
    live = set() if live is None else live
    live.update(block.outputs)
    own = {*block.arguments, *(result for instruction in block.instructions for result in instruction.results)}
    kept = []
    for instruction in reversed(block.instructions):
        needed = instruction.name in HAS_EFFECT or instruction.attributes.get("isVolatile") is True
        if not needed and not any(result in live for result in instruction.results):
            continue
        before = set(live)
        for region in instruction.regions:
            _prune(region, live)
        live.update(instruction.operands)
        unread = [result for result in instruction.results if result not in before]
        instruction.dying = tuple(sorted((live - before) & own)) + tuple(unread)
        kept.append(instruction)
    block.instructions = kept[::-1]
    return live
