"""A candidate file around its EVOLVE block: taking the block out, putting another in, and naming its identity."""

from __future__ import annotations

import ast
import hashlib

START = "# EVOLVE-BLOCK-START"
END = "# EVOLVE-BLOCK-END"


def split_block(source: str) -> tuple[str, str, str] | None:
    """(before and with the start line, the block, from the end line on), or None where there is not exactly one."""
    lines = source.splitlines(keepends=True)
    starts = [index for index, line in enumerate(lines) if line.strip() == START]
    ends = [index for index, line in enumerate(lines) if line.strip() == END]
    if len(starts) != 1 or len(ends) != 1 or starts[0] >= ends[0]:
        return None
    first, last = starts[0] + 1, ends[0]
    return "".join(lines[:first]), "".join(lines[first:last]), "".join(lines[last:])


def identity(block: str) -> str:
    """A hash that comments and layout do not change."""
    try:
        text = ast.dump(ast.parse(block))
    except (SyntaxError, ValueError, RecursionError):
        text = block
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def smallest_edit(old: str, new: str) -> tuple[str, str]:
    """(search, replace): whole lines of `old`, from the first to the last that differ, found in it only once."""
    before, after = old.splitlines(), new.splitlines()
    head = 0
    while head < min(len(before), len(after)) and before[head] == after[head]:
        head += 1
    tail = 0
    while tail < min(len(before), len(after)) - head and before[-1 - tail] == after[-1 - tail]:
        tail += 1

    def cut(lines: list[str]) -> str:
        return "\n".join(lines[head : len(lines) - tail])

    def fits() -> bool:
        search, replace = before[head : len(before) - tail], after[head : len(after) - tail]
        solid = search and replace and all(part[0].strip() and part[-1].strip() for part in (search, replace))
        return bool(solid) and f"\n{old}\n".count(f"\n{cut(before)}\n") == 1

    while not fits() and (head or tail):  # one more line of context on each side
        head, tail = max(0, head - 1), max(0, tail - 1)
    return cut(before), cut(after)
