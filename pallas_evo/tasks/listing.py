"""A task's reference as a file of its own: what `jax.jit` of it is the XLA baseline, readable without this package."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

from pallas_evo.errors import UsageError

_HEAD = '''"""The reference of {task}: the slow and obvious form. `jax.jit(reference)` is the XLA baseline."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
from jax import Array

Einsum = Callable[..., Array]
'''


@cache
def _module() -> tuple[str, dict[str, ast.FunctionDef], dict[str, ast.expr]]:
    """The text of references.py, its functions in order, and what REFERENCES says for each task."""
    text = (Path(__file__).parent / "references.py").read_text(encoding="utf-8")
    tree = ast.parse(text)
    functions = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}
    (table,) = (
        node.value
        for node in tree.body
        if isinstance(node, ast.AnnAssign) and getattr(node.target, "id", "") == "REFERENCES"
    )
    assert isinstance(table, ast.Dict)
    entries = {key.value: value for key, value in zip(table.keys, table.values, strict=True) if _is_text(key)}  # type: ignore[union-attr, attr-defined]
    return text, functions, {str(task): value for task, value in entries.items()}


def _is_text(node: ast.expr | None) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str)


def reference_source(task_id: str) -> str:
    """The reference of a task and all that it calls, as one Python file that defines `reference`.

    Raises:
        UsageError: there is no such task.
    """
    text, functions, entries = _module()
    if task_id not in entries:
        raise UsageError(f"{task_id}: expected one of the 45 tasks. List them: pallas_evo tasks")
    needed: set[str] = set()
    left: list[ast.AST] = [entries[task_id]]
    while left:
        for node in ast.walk(left.pop()):
            if isinstance(node, ast.Name) and node.id in functions and node.id not in needed:
                needed.add(node.id)
                left.append(functions[node.id])
    parts = [ast.get_source_segment(text, node) or "" for name, node in functions.items() if name in needed]
    parts.append(f"reference = {ast.get_source_segment(text, entries[task_id])}")
    return _HEAD.format(task=task_id) + "\n\n" + "\n\n\n".join(parts) + "\n"
