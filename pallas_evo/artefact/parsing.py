"""Reading MLIR: contexts, decoding, an iterative walk, source lines, and the printed form that is hashed.

Only `jaxlib.mlir` is imported, not jax: that takes 0.15 s. Everything here may be handed hostile bytes; MLIR's own
parser is C++ and may crash on them, which is why production calls it in a child process (`jailed.py`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

from jaxlib.mlir import ir
from jaxlib.mlir._mlir_libs import _stablehlo
from jaxlib.mlir.dialects import func as _func  # noqa: F401  (registers the dialect)
from jaxlib.mlir.dialects import stablehlo
from jaxlib.triton import dialect as triton_dialect

from pallas_evo.artefact.refusal import Refused, clean
from pallas_evo.artefact.rules import MODULE_BYTES, NESTING

_FILE_LINE = re.compile(r'"(?:[^"\\]|\\.)*":(\d{1,7}):\d')


@lru_cache(maxsize=1)
def context() -> ir.Context:
    """The context that all modules of this process live in.

    Unregistered dialects parse: the allow-lists then refuse their operations by name, which says more than a parser.
    """
    made = ir.Context()
    made.allow_unregistered_dialects = True
    made.enable_multithreading(False)
    stablehlo.register_dialect(made)
    triton_dialect.register_dialect(made)
    return made


def decode(module: bytes) -> ir.Module:
    """The StableHLO module in `module` (`Exported.mlir_module_serialized`)."""
    if not module:
        raise Refused("malformed", "The artefact is empty: a StableHLO portable artifact was expected.")
    if len(module) > MODULE_BYTES:
        raise Refused("malformed", f"The artefact has {len(module)} bytes; at most {MODULE_BYTES} are read.")
    try:
        return _stablehlo.deserialize_portable_artifact(context(), module)
    except (ir.MLIRError, ValueError, TypeError, RuntimeError) as error:
        raise Refused("malformed", "The artefact is not a StableHLO portable artifact that can be read.") from error


def parse(text: str | bytes, what: str) -> ir.Module:
    """A module from text or bytecode; `what` names it in the message."""
    try:
        return ir.Module.parse(text, context=context())
    except (ir.MLIRError, ValueError, TypeError, RuntimeError) as error:
        said = clean(str(error).removeprefix("Unable to parse module assembly:"), 200)
        raise Refused("malformed", f"{what} cannot be parsed: {said}") from error


def text_of(module: ir.Module) -> str:
    """The printed module without any source location."""
    return module.operation.get_asm(enable_debug_info=False)


def walk(root: Any, most: int) -> Iterator[Any]:
    """Every operation under `root` in order, parents first, without recursion.

    Raises:
        Refused: more than `most` operations, or nesting deeper than NESTING.
    """
    seen = 0
    stack = [iter(_inner(root))]
    while stack:
        operation = next(stack[-1], None)
        if operation is None:
            stack.pop()
            continue
        seen += 1
        if seen > most:
            raise Refused(
                "program_size",
                f"The program has more than {most} operations; use loops (lax.fori_loop) instead of unrolling.",
            )
        yield operation
        inner = _inner(operation)
        if inner:
            if len(stack) >= NESTING:
                raise Refused(
                    "program_size",
                    f"The program nests deeper than {NESTING} levels; use fewer nested loops and branches.",
                )
            stack.append(iter(inner))


def _inner(operation: Any) -> list[Any]:
    return [child.operation for region in operation.regions for block in region.blocks for child in block.operations]


def attributes(operation: Any) -> Iterator[tuple[str, ir.Attribute]]:
    """Name and value of every attribute, inherent ones too, on both ages of the Python bindings."""
    for item in operation.attributes:
        name = item if isinstance(item, str) else item.name
        yield name, operation.attributes[name]


class Lines:
    """Source lines of a module's operations, found by their place in the walk.

    What is validated is the module parsed from the printed text, which has no locations; the decoded module has them,
    and the same operations in the same order.
    """

    def __init__(self, located: ir.Module, most: int) -> None:
        self._module = located  # keeps the operations alive
        self._operations = list(walk(located.operation, most))

    def __len__(self) -> int:
        return len(self._operations)

    def at(self, place: int | None) -> str:
        """`" (line 12)"`, or nothing where no line is known."""
        if place is None or not 0 <= place < len(self._operations):
            return ""
        found = _FILE_LINE.search(str(self._operations[place].location)[:20_000])
        return f" (line {found.group(1)})" if found else ""
