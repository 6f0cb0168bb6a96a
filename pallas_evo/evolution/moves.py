"""Structural moves: each takes an EVOLVE block and gives others that compute the same in another way.

A move works on the source that it is shown and returns nothing where the source has not the form that it knows. It is
not a proof: whether the outcome is right and fast is the judge's to say.

grid_order     axes of every grid exchanged, program ids with them
one_axis       a two-dimensional grid walked by one axis, in groups of rows
several        a program does the work of several neighbours, one after another
unroll         several turns of the inner loop at once
backwards      the inner loop from its end
hints          eviction and cache hints on one load or store
precision      one dot in full float32, or back in TF32

`rewrites.py` has those that need the syntax tree.
"""

from __future__ import annotations

import ast
import itertools
import re
from collections.abc import Callable, Iterator

from pallas_evo.evolution.rewrites import rewrites_of

_HELPERS = {
    "unrolled": '''def unrolled(count, step, start):
    """`count` steps, UNROLL of them a turn, and what is left over after the last turn."""

    def turn(block, carry):
        for part in range(UNROLL):
            carry = step(block * UNROLL + part, carry)
        return carry

    carry = lax.fori_loop(0, count // UNROLL, turn, start) if count >= UNROLL else start
    for block in range(count - count % UNROLL, count):
        carry = step(block, carry)
    return carry
''',
    "backwards": '''def backwards(count, step, start):
    """`count` steps from the last to the first."""
    return lax.fori_loop(0, count, lambda block, carry: step(count - 1 - block, carry), start)
''',
    "several": '''def several(body, programs):
    """A program that does the work of PROGRAMS_EACH; past the end the last is done again, to the same effect."""

    def run(*refs):
        for part in range(PROGRAMS_EACH):
            body(jnp.minimum(pl.program_id(0) * PROGRAMS_EACH + part, programs - 1), *refs)

    return run
''',
    "grouped": '''def grouped(body, rows, cols):
    """One grid axis over rows x cols tiles, GROUP rows at a time, so that neighbours in time share what they read."""

    def run(*refs):
        program = pl.program_id(0)
        first = program // (GROUP * cols) * GROUP
        height = jnp.minimum(rows - first, GROUP)
        within = program % (GROUP * cols)
        body(first + within % height, within // height, *refs)

    return run
''',
}


def moves_of(block: str, *, dot_task: bool = True) -> Iterator[tuple[str, str]]:
    """(name, block) of everything that the moves make of a block; all of it parses."""
    makers: tuple[Callable[[str], Iterator[tuple[str, str]]], ...] = (_grid_order, _one_axis, _several, _loops, _hints)
    for make in (*makers, _precision) if dot_task else makers:
        for name, made in make(block):
            if made != block and _parses(made):
                yield name, made
    for name, made in rewrites_of(block):
        if made != block and _parses(made):
            yield name, made


_TRANSPOSED = re.compile(r"\w+\.T\b|jnp\.swapaxes\(\w+, -1, -2\)")
_MARKS = {
    "rows_at_once": "ROWS_AT_ONCE",
    "one_pass": "jnp.maximum(jnp.sum(",
    "reciprocal": " * (1.0 / ",
    "exp2": "jnp.exp2(",
    "few_masks": "def below(",
}


def tags_of(block: str) -> tuple[str, ...]:
    """What a block shows of these moves, as features for the model."""
    found = [name for name in _HELPERS if f"def {name}(" in block]
    found += [f"evict:{what}" for what in set(re.findall(r'eviction_policy="(\w+)"', block))]
    found += [f"cache:{what}" for what in set(re.findall(r'cache_modifier="\.(\w+)"', block))]
    found += [f"k_major:{len(arrays)}" for arrays in [_TRANSPOSED.findall(block)] if arrays]
    found += [tag for tag, mark in _MARKS.items() if mark in block]
    found += ["full_precision"] if "Precision.HIGHEST" in block else []
    found += ["columns_first"] if re.search(r"rows = \(?pl\.program_id\(1\)", block) else []
    return tuple(sorted(found))


def _parses(block: str) -> bool:
    try:
        ast.parse(block)
    except SyntaxError:
        return False
    return True


# ---- the grid --------------------------------------------------------------------------------------------------

_PROGRAM_ID = re.compile(r"pl\.program_id\((\d)\)")
_GRID = re.compile(r"\bgrid=(\()")


def _grids(block: str) -> list[tuple[int, int, list[str]]] | None:
    """(start, end, axes) of every `grid=(...)` in the block, or None where one is not written out."""
    found = []
    if len(re.findall(r"\bgrid=", block)) != len(_GRID.findall(block)):
        return None
    for match in _GRID.finditer(block):
        end = _closing(block, match.start(1))
        if end is None:
            return None
        found.append((match.start(1), end + 1, _parts(block[match.start(1) + 1 : end])))
    return found or None


def _closing(text: str, opening: int) -> int | None:
    """The place of the bracket that closes the one at `opening`."""
    depth = 0
    for place in range(opening, len(text)):
        depth += (text[place] in "([{") - (text[place] in ")]}")
        if depth == 0:
            return place
    return None


def _parts(text: str) -> list[str]:
    """The text split at its outermost commas."""
    parts, depth, start = [], 0, 0
    for place, letter in enumerate(text):
        depth += (letter in "([{") - (letter in ")]}")
        if letter == "," and depth == 0:
            parts.append(text[start:place].strip())
            start = place + 1
    return [part for part in (*parts, text[start:].strip()) if part]


def _grid_order(block: str) -> Iterator[tuple[str, str]]:
    grids = _grids(block)
    if not grids or len({len(axes) for _, _, axes in grids}) != 1 or "GROUP" in block:
        return
    rank = len(grids[0][2])
    if {int(axis) for axis in _PROGRAM_ID.findall(block)} - set(range(rank)):
        return
    for order in itertools.permutations(range(rank)):
        if order == tuple(range(rank)):
            continue
        made = block
        for start, end, axes in reversed(grids):
            made = made[:start] + "(" + ", ".join(axes[axis] for axis in order) + ")" + made[end:]
        names = [f"pl.program_id({order.index(axis)})" for axis in range(rank)]
        yield "grid_order", _renamed_ids(made, names)


def _renamed_ids(block: str, names: list[str]) -> str:
    """Every `pl.program_id(axis)` replaced by the axis's name."""
    return _PROGRAM_ID.sub(lambda match: names[int(match.group(1))], block)


def _launch(block: str, rank: int) -> tuple[str, int, int, list[str]] | None:
    """(body's name, grid's start, end, axes) where the block is one launch of one function over `rank` axes."""
    grids = _grids(block)
    called = re.findall(r"pl\.pallas_call\(\s*(\w+)\s*,", block)
    if not grids or len(grids) != 1 or len(called) != 1 or len(grids[0][2]) != rank:
        return None
    functions = re.findall(rf"^def {called[0]}\((.*?)\):\n((?:(?:    .*)?\n)*)", block, re.MULTILINE)
    if len(functions) != 1 or len(_PROGRAM_ID.findall(block)) != len(_PROGRAM_ID.findall(functions[0][1])):
        return None
    ids = set(_PROGRAM_ID.findall(functions[0][1]))
    return (called[0], *grids[0]) if ids == {str(axis) for axis in range(rank)} else None


def _wrapped(block: str, launch: tuple[str, int, int, list[str]], names: list[str], call: str, grid: str) -> str:
    """The body takes its program ids as arguments, and the call goes through a helper that gives them."""
    body, start, end, _ = launch
    made = block[:start] + grid + block[end:]
    made = _renamed_ids(made, names)
    made = made.replace(f"def {body}(", f"def {body}({', '.join(names)}, ", 1)
    return re.sub(rf"(pl\.pallas_call\(\s*){body}(\s*,)", rf"\g<1>{call}\g<2>", made)


def _one_axis(block: str) -> Iterator[tuple[str, str]]:
    launch = _launch(block, 2)
    if launch is None:
        return
    rows, cols = launch[3]
    call = f"grouped({launch[0]}, {rows}, {cols})"
    made = _wrapped(block, launch, ["tile_row", "tile_col"], call, f"({rows} * {cols},)")
    for group in (1, 4, 8):
        yield "one_axis", _with_helper(made, "grouped", "GROUP", group)


def _several(block: str) -> Iterator[tuple[str, str]]:
    launch = _launch(block, 1)
    if launch is None or "atomic" in block:
        return
    (programs,) = launch[3]
    call = f"several({launch[0]}, {programs})"
    made = _wrapped(block, launch, ["program"], call, f"(pl.cdiv({programs}, PROGRAMS_EACH),)")
    for each in (2, 4):
        yield "several", _with_helper(made, "several", "PROGRAMS_EACH", each)


# ---- loops -----------------------------------------------------------------------------------------------------

_LOOP = re.compile(r"lax\.fori_loop\(0, ")


def _loops(block: str) -> Iterator[tuple[str, str]]:
    helpers = [f"def {name}(" in block for name in ("unrolled", "backwards")]
    if any(helpers) or not _LOOP.search(block):
        return
    for turns in (2, 4, 16):
        yield "unroll", _with_helper(_LOOP.sub("unrolled(", block), "unrolled", "UNROLL", turns)
    yield "backwards", _with_helper(_LOOP.sub("backwards(", block), "backwards")


def _with_helper(block: str, helper: str, constant: str | None = None, value: int = 1) -> str:
    """The block with a helper before its first function and the helper's constant before its first line."""
    first = re.search(r"^(?:def |@|class )", block, re.MULTILINE)
    place = first.start() if first else len(block)
    made = block[:place] + _HELPERS[helper] + "\n\n" + block[place:]
    return f"{constant} = {value}\n{made}" if constant else made


# ---- single accesses -------------------------------------------------------------------------------------------

_HINTS = (
    "",
    ', eviction_policy="evict_first"',
    ', eviction_policy="evict_last"',
    ', cache_modifier=".cg"',
    ', cache_modifier=".ca"',
)
_STORE_HINTS = ("", ', eviction_policy="evict_first"', ', eviction_policy="evict_last"')
_HINT = re.compile(r', (?:eviction_policy|cache_modifier)="[.\w]+"')


def _hints(block: str) -> Iterator[tuple[str, str]]:
    for match in re.finditer(r"plgpu\.(load|store)(\()", block):
        end = _closing(block, match.start(2))
        if end is None:
            continue
        call = _HINT.sub("", block[match.start() : end])
        for hint in _HINTS if match.group(1) == "load" else _STORE_HINTS:
            yield "hints", block[: match.start()] + call + hint + block[end:]


def _precision(block: str) -> Iterator[tuple[str, str]]:
    """Only for tasks that allow TF32: there a dot in full float32 is right too, if slower."""
    full = ", precision=jax.lax.Precision.HIGHEST"
    for match in re.finditer(r"jnp\.dot(\()", block):
        end = _closing(block, match.start(1))
        if end is not None:
            call = block[match.start() : end]
            changed = call.replace(full, "") if full in call else call + full
            yield "precision", block[: match.start()] + changed + block[end:]
