"""The contract gate: what a candidate's file says, read without running any of it."""

from __future__ import annotations

import ast
import re

from pallas_evo.types import Rejection, Task

# The lines that ShinkaEvolve looks for, as it looks for them: alone on a line, comment or not.
_START = re.compile(r"^\s*#\s*EVOLVE-BLOCK-START\s*$", re.MULTILINE)
_END = re.compile(r"^\s*#\s*EVOLVE-BLOCK-END\s*$", re.MULTILINE)


def check_contract(source: str, task: Task, source_bytes: int) -> ast.Module | Rejection:
    """The parsed file, or why it is no candidate for the task.

    Args:
        source: the file's text.
        task: what it is a candidate for.
        source_bytes: the most that a file may have.
    """
    size = len(source.encode("utf-8", "surrogatepass"))
    if size > source_bytes:
        return Rejection(
            reason="too_large", message=f"The file has {size} bytes; a candidate may have {source_bytes}. Shorten it."
        )
    tree = _parse(source)
    if isinstance(tree, Rejection):
        return tree
    return _check_block(source) or _check_kernel(tree, task) or tree


def _parse(source: str) -> ast.Module | Rejection:
    try:
        return ast.parse(source, "candidate.py")
    except SyntaxError as error:
        line = (error.text or "").rstrip("\n")[:200]
        caret = " " * max(0, (error.offset or 1) - 1) + "^" if line else ""
        where = f"line {error.lineno}: " if error.lineno else ""
        shown = f"\n    {line}\n    {caret}" if line else ""
        return Rejection(reason="syntax", message=f"{where}{error.msg}{shown}")
    except (ValueError, RecursionError, MemoryError, UnicodeError) as error:
        said = "it is nested too deeply" if isinstance(error, RecursionError | MemoryError) else str(error)
        return Rejection(reason="syntax", message=f"The file is not Python that can be parsed: {said}.")


def _check_block(source: str) -> Rejection | None:
    starts, ends = _START.findall(source), _END.findall(source)
    if len(starts) == len(ends) == 1 and _START.search(source).start() < _END.search(source).start():  # type: ignore[union-attr]
        return None
    return Rejection(
        reason="evolve_block",
        message=f"Expected exactly one line `# EVOLVE-BLOCK-START` and one `# EVOLVE-BLOCK-END` after it; found "
        f"{len(starts)} and {len(ends)}.",
    )


def _check_kernel(tree: ast.Module, task: Task) -> Rejection | None:
    definition = None
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name == "kernel":
            definition = node
        elif isinstance(
            node, ast.Assign | ast.AnnAssign | ast.ImportFrom | ast.Import | ast.With | ast.If | ast.Try
        ) and _binds_kernel(node):
            definition = None
            break
    else:
        if definition is None:
            return Rejection(
                reason="no_kernel",
                message=f"The file defines no function `kernel`. Define kernel({_names(task)}) at its top level.",
            )
    if not isinstance(definition, ast.FunctionDef):
        return None  # bound in another way: the tracer will see what it is
    arguments = definition.args
    positional = [*arguments.posonlyargs, *arguments.args]
    required = len(positional) - len(arguments.defaults)
    keyword_only = [a.arg for a, d in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True) if d is None]
    most = float("inf") if arguments.vararg else len(positional)
    if required <= len(task.inputs) <= most and not keyword_only:
        return None
    return Rejection(
        reason="arity",
        message=f"line {definition.lineno}: {task.id} calls kernel({_names(task)}), with {len(task.inputs)} "
        f"argument(s); this `kernel` takes ({ast.unparse(arguments)}).",
    )


def _binds_kernel(node: ast.stmt) -> bool:
    for inner in ast.walk(node):
        if isinstance(inner, ast.Name) and inner.id == "kernel" and isinstance(inner.ctx, ast.Store):
            return True
        if isinstance(inner, ast.alias) and (inner.asname or inner.name) == "kernel":
            return True
        if isinstance(inner, ast.FunctionDef) and inner.name == "kernel":
            return True
    return False


def _names(task: Task) -> str:
    return ", ".join(spec.name for spec in task.inputs)
