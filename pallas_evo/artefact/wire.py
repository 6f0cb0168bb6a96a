"""Frames between a parent and its validating or compiling child: JSON, with bytes in base64.

The child runs our code, but on hostile bytes through a C++ parser: its answers are read as data, every field checked.
"""

from __future__ import annotations

import base64
import dataclasses
import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

from pallas_evo.artefact.refusal import MESSAGE_LENGTH, clean
from pallas_evo.config import ArtefactLimits
from pallas_evo.reasons import REASONS
from pallas_evo.types import ArraySpec, Artefact, Compiled, Kernel, Rejection, Workload

ANSWER_BYTES = 128 << 20
"""Largest answer that is read: the printed program, and every kernel's text once more."""


class BadAnswer(ValueError):
    """A child's answer is not one that our code gives."""


def job(module: bytes, workload: Workload, limits: ArtefactLimits) -> bytes:
    """One validation for the child."""
    return json.dumps(
        {
            "module": base64.b64encode(module).decode(),
            "workload": dataclasses.asdict(workload),
            "limits": dataclasses.asdict(limits),
        }
    ).encode()


def read_job(frame: bytes) -> tuple[bytes, Workload, ArtefactLimits]:
    """What `job` wrote; it comes from our parent, so it is believed."""
    found = json.loads(frame)
    given = found["workload"]
    workload = Workload(
        task_id=given["task_id"],
        label=given["label"],
        dims=given["dims"],
        inputs=tuple(_spec(item) for item in given["inputs"]),
        output=_spec(given["output"]),
    )
    return base64.b64decode(found["module"]), workload, ArtefactLimits(**found["limits"])


def _spec(given: Mapping[str, Any]) -> ArraySpec:
    return ArraySpec(shape=tuple(given["shape"]), dtype=given["dtype"])


def verdict(result: Artefact | Rejection | Compiled, ptx: Sequence[str] = ()) -> bytes:
    """A child's answer; the workload stays with the parent. `ptx` is each kernel's text, where asked for."""
    if isinstance(result, Artefact):
        fields = {name: getattr(result, name) for name in ("module", "sha256", "moved_bytes")}
        fields["kernels"] = [dataclasses.asdict(kernel) for kernel in result.kernels]
        return json.dumps({"artefact": fields}).encode()
    if isinstance(result, Compiled):
        return json.dumps({"compiled": {**dataclasses.asdict(result), "ptx": list(ptx)}}).encode()
    return json.dumps({"rejection": dataclasses.asdict(result)}).encode()


def read_verdict(frame: bytes, workload: Workload, limits: ArtefactLimits) -> Artefact | Rejection:
    """A validating child's answer.

    Raises:
        BadAnswer: it is not one that our code gives.
    """
    kind, given = _answer(frame)
    if kind == "rejection":
        return _rejection(given)
    if kind != "artefact":
        raise BadAnswer(f"expected artefact or rejection, came {kind}")
    module = _take(given, "module", str)
    kernels = _take(given, "kernels", list)
    if not 1 <= len(kernels) <= limits.kernels:
        raise BadAnswer(f"{len(kernels)} kernels")
    if _take(given, "sha256", str) != hashlib.sha256(module.encode()).hexdigest():
        raise BadAnswer("the hash is not the module's")
    return Artefact(
        workload=workload,
        module=module,
        sha256=given["sha256"],
        kernels=tuple(_kernel(item) for item in kernels),
        moved_bytes=_natural(given, "moved_bytes"),
    )


def read_compiled(frame: bytes, sm: str) -> tuple[Compiled | Rejection, tuple[str, ...]]:
    """A compiling child's answer for one artefact, and its kernels' PTX where it was asked for.

    Raises:
        BadAnswer: it is not one that our code gives.
    """
    kind, given = _answer(frame)
    if kind == "rejection":
        return _rejection(given), ()
    if kind != "compiled":
        raise BadAnswer(f"expected compiled or rejection, came {kind}")
    occupancy, seconds = _take(given, "occupancy", float), _take(given, "seconds", float)
    if not 0 <= occupancy <= 1 or not 0 <= seconds < 1e6:
        raise BadAnswer("occupancy or seconds out of range")
    counts = {name: _natural(given, name) for name in ("registers", "spill_bytes", "shared_bytes", "ptx_bytes")}
    ptx = _take(given, "ptx", list)
    if not all(type(text) is str for text in ptx):
        raise BadAnswer("ptx is not text")
    return Compiled(sm=sm, occupancy=occupancy, seconds=seconds, **counts), tuple(ptx)


def _answer(frame: bytes) -> tuple[str, dict[str, Any]]:
    try:
        found = json.loads(frame)
    except (ValueError, RecursionError) as error:
        raise BadAnswer("not JSON") from error
    if not isinstance(found, dict) or len(found) != 1:
        raise BadAnswer("not one object")
    ((kind, given),) = found.items()
    if not isinstance(given, dict):
        raise BadAnswer("not an object")
    return kind, given


def _rejection(given: Mapping[str, Any]) -> Rejection:
    reason, message = _take(given, "reason", str), _take(given, "message", str)
    if reason not in REASONS or REASONS[reason][0] not in ("validate", "compile"):
        raise BadAnswer("an unknown reason")
    return Rejection(reason=reason, message=clean(message, MESSAGE_LENGTH))


def _kernel(given: object) -> Kernel:
    if not isinstance(given, dict):
        raise BadAnswer("a kernel is not an object")
    grid = _take(given, "grid", list)
    if len(grid) != 3 or not all(type(size) is int and size > 0 for size in grid):
        raise BadAnswer("a grid is not three sizes")
    name = _take(given, "name", str)
    if not name.isascii() or not name.replace("_", "a").isalnum() or len(name) > 64:
        raise BadAnswer("a kernel's name is not an identifier")
    return Kernel(
        name=name,
        grid=(grid[0], grid[1], grid[2]),
        num_warps=_natural(given, "num_warps"),
        num_stages=_natural(given, "num_stages"),
        ttir=_take(given, "ttir", str),
    )


def _take(given: Mapping[str, Any], key: str, kind: type) -> Any:
    value = given.get(key)
    if type(value) is not kind:
        raise BadAnswer(f"{key} is not {kind.__name__}")
    return value


def _natural(given: Mapping[str, Any], key: str) -> int:
    value = _take(given, key, int)
    if value < 0:
        raise BadAnswer(f"{key} is negative")
    return int(value)
