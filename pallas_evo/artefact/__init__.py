"""B: the validator. Bytes that a candidate's process made become a program that we printed ourselves, or a reason.

validate              one artefact, in this process (it parses hostile bytes: use it on what you made yourself)
validate_jailed       many, in a jailed child: what production calls
compile_offline       what Triton and ptxas make of an artefact for a GPU that need not be there (the `ptx` extra)
compile_offline_many  the same for several artefacts and architectures in one child

The door is lazy: MLIR is imported only where `validate` is used, which a parent of jailed children never does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pallas_evo.artefact.compiling import compile_offline, compile_offline_many
    from pallas_evo.artefact.jailed import validate_jailed
    from pallas_evo.artefact.validator import validate

__all__ = ["compile_offline", "compile_offline_many", "validate", "validate_jailed"]

_HOME = {
    "validate": "validator",
    "validate_jailed": "jailed",
    "compile_offline": "compiling",
    "compile_offline_many": "compiling",
}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
