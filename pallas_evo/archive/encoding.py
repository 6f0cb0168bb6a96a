"""Plain values for the database and back: dataclasses, JSON that loses nothing, hashes, identifiers, diffs."""

from __future__ import annotations

import difflib
import hashlib
import json
import math
import os
import sys
import time
import types
import typing
from array import array
from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from typing import Any, TypeVar

from pallas_evo.errors import PallasEvoError

T = TypeVar("T")

_NON_FINITE = "__float__"  # JSON has no NaN and no infinity, but a rejected candidate's errors may be either
_NESTED = (dict, list)


def plain(value: Any, where: str = "value") -> Any:
    """Turn dataclasses, mappings, sequences and NumPy scalars into what JSON holds; floats keep every bit.

    Raises:
        PallasEvoError: something in it has no JSON form; `where` says which part.
    """
    if value is None or isinstance(value, str | bool):
        return value
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else {_NON_FINITE: repr(float(value))}
    if is_dataclass(value) and not isinstance(value, type):
        return {f.name: plain(getattr(value, f.name), f"{where}.{f.name}") for f in fields(value)}
    if isinstance(value, Mapping):
        for key in value:
            if not isinstance(key, str):
                raise PallasEvoError(f"{where}: expected keys that are strings, came {key!r}. Convert them first.")
        return {key: plain(item, f"{where}.{key}") for key, item in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, bytes | bytearray):
        return [plain(item, f"{where}[{index}]") for index, item in enumerate(value)]
    if getattr(value, "shape", None) == () and hasattr(value, "item"):  # a NumPy or JAX scalar
        return plain(value.item(), where)
    raise PallasEvoError(f"{where}: expected what JSON can hold, came a {type(value).__name__}. Convert it first.")


def restore(value: Any) -> Any:
    """Undo `plain` on what JSON holds (dataclasses stay dictionaries, tuples lists)."""
    if isinstance(value, dict):
        if len(value) == 1 and _NON_FINITE in value:
            return float(value[_NON_FINITE])
        return {key: restore(item) if isinstance(item, _NESTED) else item for key, item in value.items()}
    if isinstance(value, list):
        return [restore(item) if isinstance(item, _NESTED) else item for item in value]
    return value


def build(kind: type[T], data: Mapping[str, Any]) -> T:
    """Make the dataclass `kind` from the dictionary that `plain` made of one. Unknown keys are left out."""
    hints = typing.get_type_hints(kind)
    return kind(**{f.name: _typed(hints[f.name], data[f.name]) for f in fields(kind) if f.name in data})  # type: ignore[arg-type]


def _typed(hint: Any, value: Any) -> Any:
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if value is None or hint is Any:
        return value
    if origin in (typing.Union, types.UnionType):
        # Our unions are `X | None`, or of plain types (`str | int`), which JSON keeps apart by itself.
        inner = [argument for argument in arguments if argument is not type(None)]
        return _typed(inner[0], value) if len(inner) == 1 else value
    if origin is tuple:
        if len(arguments) == 2 and arguments[1] is Ellipsis:
            return tuple(_typed(arguments[0], item) for item in value)
        return tuple(_typed(argument, item) for argument, item in zip(arguments, value, strict=True))
    if origin is not None and isinstance(origin, type) and issubclass(origin, Mapping):
        return {key: _typed(arguments[1], item) for key, item in value.items()}
    if is_dataclass(hint):
        return build(typing.cast(type, hint), value)
    return float(value) if hint is float else value


def sha256_of_text(text: str) -> str:
    """SHA-256 of the text's UTF-8 bytes, in hex: a program's identity beside its task."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def sha256_of_json(value: Any) -> str:
    """SHA-256 of the value's canonical JSON (sorted keys, no spaces), in hex."""
    return sha256_of_text(json.dumps(plain(value), sort_keys=True, separators=(",", ":")))


def new_id() -> str:
    """32 hex digits: milliseconds since 1970, then 80 random bits. Unique across machines, ordered by time."""
    return f"{time.time_ns() // 1_000_000:012x}{os.urandom(10).hex()}"


def unified_diff(parent: str, child: str) -> str:
    """The unified diff from parent to child, three lines of context."""
    lines = difflib.unified_diff(
        parent.splitlines(keepends=True), child.splitlines(keepends=True), fromfile="parent", tofile="child"
    )
    return "".join(line if line.endswith("\n") else line + "\n\\ No newline at end of file\n" for line in lines)


def pack_samples(samples: Sequence[float]) -> bytes:
    """Float64 little-endian, one after another."""
    packed = array("d", samples)
    if sys.byteorder == "big":
        packed.byteswap()
    return packed.tobytes()


def unpack_samples(data: bytes) -> tuple[float, ...]:
    """Undo `pack_samples`."""
    packed = array("d")
    packed.frombytes(bytes(data))
    if sys.byteorder == "big":
        packed.byteswap()
    return tuple(packed)
