"""source_analysis: what the source and the exported program say, by their syntax trees and not by their text.

A comment is not code, an accumulator that starts at zero is not a fault. This filter is a tripwire that answers early
and plainly; what it misses meets the jail (host code) and the validator (device code).

value = number of findings; the threshold is 0.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

from pallas_evo.types import Artefact, FilterResult, Rejection

IMPORTS = frozenset(
    {"jax", "jaxlib", "numpy", "math", "functools", "itertools", "operator", "typing", "dataclasses", "__future__"}
)
_PRIVATE = ("jax._src", "jaxlib.", "numpy.ctypeslib", "numpy.f2py", "numpy.testing", "jax.experimental.io_callback")
_BUILTINS = frozenset(
    {
        "exec", "eval", "compile", "open", "__import__", "globals", "locals", "vars", "input", "breakpoint", "setattr",
        "delattr", "__builtins__", "__loader__", "__spec__", "exit", "quit",
    }
)  # fmt: skip
_ATTRIBUTES = {
    **dict.fromkeys(
        ("sys", "os", "modules", "builtins", "subprocess", "ctypes", "ctypeslib", "socket", "importlib", "pickle",
         "threading", "multiprocessing", "inspect", "gc"),
        "reaches a module that a kernel has no use for",
    ),
    **dict.fromkeys(
        ("pure_callback", "io_callback", "host_callback", "call_tf", "ffi_call"),
        "calls back to the host: all work belongs into the Pallas kernel",
    ),
    **dict.fromkeys(
        ("memmap", "fromfile", "tofile", "savez", "savez_compressed", "loadtxt", "savetxt", "genfromtxt", "save"),
        "touches files",
    ),
    **dict.fromkeys(("config", "enable_x64", "default_matmul_precision"), "changes JAX's settings"),
}  # fmt: skip
_DUNDERS = frozenset({"__name__", "__doc__", "__init__", "__post_init__", "__call__", "__len__", "__getitem__"})


def analyse_source(tree: ast.Module) -> tuple[FilterResult, Rejection | None]:
    """Look for what no kernel needs: foreign imports, dynamic code, host callbacks, patched modules, global state."""
    findings = sorted(_walk(tree), key=lambda finding: finding[0])
    return _result(findings)


def analyse_artefact(artefacts: Sequence[Artefact]) -> tuple[FilterResult, Rejection | None]:
    """Look for a program that computes from nothing: at no size may all kernels do without a load."""
    findings = [
        (0, "reads_nothing", f"At {artefact.workload.label} no kernel loads anything: the output is made up.")
        for artefact in artefacts
        if not any(" = tt.load " in kernel.ttir or "tt.atomic" in kernel.ttir for kernel in artefact.kernels)
    ]
    return _result(findings)


def _result(findings: Sequence[tuple[int, str, str]]) -> tuple[FilterResult, Rejection | None]:
    message = "The source holds nothing that a kernel has no use for." if not findings else findings[0][2]
    if len(findings) > 1:
        message += f" ({len(findings) - 1} more)"
    result = FilterResult(passed=not findings, value=float(len(findings)), threshold=0.0, message=message)
    return result, Rejection(reason=findings[0][1], message=message) if findings else None


def _walk(tree: ast.Module) -> Iterator[tuple[int, str, str]]:
    imported = _imported_names(tree)
    for node in ast.walk(tree):
        line = getattr(node, "lineno", 0)
        if isinstance(node, ast.Import | ast.ImportFrom):
            yield from _import(node)
        elif isinstance(node, ast.Name) and node.id in _BUILTINS:
            yield line, "forbidden_name", f"line {line}: `{node.id}` has no place in a kernel; write the code out."
        elif isinstance(node, ast.Attribute):
            yield from _attribute(node, imported)
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "getattr":
            named = node.args[1] if len(node.args) > 1 else None
            if not (isinstance(named, ast.Constant) and isinstance(named.value, str)):
                yield line, "forbidden_name", f"line {line}: `getattr` with a computed name; write the attribute out."
            elif named.value.startswith("_") or named.value in _ATTRIBUTES:
                yield line, "forbidden_name", f"line {line}: `getattr(..., {named.value!r})`: {_why(named.value)}."
        elif isinstance(node, ast.Global):
            yield (
                line,
                "forbidden_state",
                f"line {line}: `global {', '.join(node.names)}`: a kernel is a pure function; pass what it needs as "
                "arguments.",
            )


def _import(node: ast.Import | ast.ImportFrom) -> Iterator[tuple[int, str, str]]:
    if isinstance(node, ast.ImportFrom):
        names = [f"{node.module or ''}.{alias.name}" for alias in node.names]
        if node.level:
            names = ["." * node.level + names[0]]
    else:
        names = [alias.name for alias in node.names]
    for name in names:
        root = name.split(".")[0]
        last = name.split(".")[-1]
        if root not in IMPORTS:
            yield (
                node.lineno,
                "forbidden_import",
                f"line {node.lineno}: `{name}` may not be imported; a candidate may import "
                f"{', '.join(sorted(IMPORTS - {'__future__', 'jaxlib'}))} and what is below them.",
            )
        elif name.startswith(_PRIVATE) or last in _ATTRIBUTES or (isinstance(node, ast.ImportFrom) and last == "*"):
            yield node.lineno, "forbidden_import", f"line {node.lineno}: `{name}`: {_why(last)}."


def _attribute(node: ast.Attribute, imported: frozenset[str]) -> Iterator[tuple[int, str, str]]:
    line, name = node.lineno, node.attr
    root = node.value
    while isinstance(root, ast.Attribute):
        root = root.value
    of_module = isinstance(root, ast.Name) and root.id in imported
    if not isinstance(node.ctx, ast.Load):
        if of_module:
            yield line, "forbidden_state", f"line {line}: `{ast.unparse(node)}` is patched; modules are not yours."
    elif name.startswith("__") and name.endswith("__") and name not in _DUNDERS:
        yield line, "forbidden_name", f"line {line}: `.{name}` reaches into the interpreter; a kernel needs none of it."
    elif name in _ATTRIBUTES and of_module:
        yield line, "forbidden_name", f"line {line}: `{ast.unparse(node)}`: {_why(name)}."
    elif name == "_src" and of_module:
        yield line, "forbidden_name", f"line {line}: `{ast.unparse(node)}` is private; use the public name."


def _why(name: str) -> str:
    return f"it {_ATTRIBUTES[name]}" if name in _ATTRIBUTES else "it is private, or names nothing in particular"


def _imported_names(tree: ast.Module) -> frozenset[str]:
    """Names that stand for an imported module or something in one."""
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names.update(alias.asname or alias.name.split(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            names.update(alias.asname or alias.name for alias in node.names)
    return frozenset(names)
