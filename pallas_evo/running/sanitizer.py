"""NVIDIA's compute-sanitizer on one run of a validated program: accesses that the driver lets pass.

A run on a GPU faults only where an address belongs to no allocation of the process at all; compute-sanitizer checks
every access against the buffers. It takes seconds to minutes, so it is for elites only. It comes with the CUDA toolkit,
and in the wheel nvidia-cuda-sanitizer-api; where it is not installed nothing is checked, and that is said.

What is believed is the exit code that we asked for; the report is text, read with distrust: a kernel's name in it is
the candidate's choice.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import numpy as np

from pallas_evo.errors import WorkerFailed
from pallas_evo.jail import printable
from pallas_evo.running.lease import lease
from pallas_evo.types import Artefact

CHILD = "pallas_evo.running.sanitizer_child"
NAME = "compute-sanitizer"
TOOLS = ("memcheck",)
"""memcheck: accesses out of bounds or misaligned. initcheck (reads of memory that nobody wrote) can be asked for;
racecheck looks at shared memory, which Triton's compiler and not the candidate synchronises."""
FOUND = 86  # the exit code that we ask for where a tool finds something
DEADLINE_S = 120.0
REPORT_BYTES = 1 << 20
MOST_FINDINGS = 8
_LINE = re.compile(r"^========= ?(.*)$")
_NO_FINDING = re.compile(
    r"^(COMPUTE-SANITIZER|(ERROR|RACECHECK|LEAK) SUMMARY|Saved host backtrace|Host Frame|Target application|"
    r"Error: Target application|Warning:|Internal|$|\s)",
)
_PASSED = ("LD_LIBRARY_PATH", "CUDA_VISIBLE_DEVICES", "CUDA_HOME", "NVIDIA_VISIBLE_DEVICES")


@dataclass(frozen=True, kw_only=True)
class Report:
    """What one tool said of one run.

    `errors` is None where it did not come to an end within its deadline; `findings` are the first few, a line each.
    """

    tool: str
    errors: int | None
    findings: tuple[str, ...]
    seconds: float


def find_sanitizer() -> Path | None:
    """The program: on PATH, in a CUDA toolkit, or from NVIDIA's wheel; None where there is none."""
    found = shutil.which(NAME)
    if found:
        return Path(found)
    homes = [Path(home) for home in (os.environ.get("CUDA_HOME"), os.environ.get("CUDA_PATH")) if home]
    homes += [Path("/usr/local/cuda"), Path("/opt/cuda")]
    wheels = find_spec("nvidia")
    for folder in (wheels.submodule_search_locations or ()) if wheels else ():
        homes += [Path(folder, "cu13"), Path(folder, "cuda_sanitizer_api")]
    for home in homes:
        for place in (home / NAME / NAME, home / "bin" / NAME):
            if place.is_file() and os.access(place, os.X_OK):
                return place
    return None


def sanitize(
    artefact: Artefact, inputs: Sequence[np.ndarray], *, tools: Sequence[str] = TOOLS, deadline_s: float = DEADLINE_S
) -> tuple[Report, ...] | None:
    """Run a program once under each tool.

    Args:
        artefact: a validated program; a small size is enough and quick.
        inputs: one input set.
        deadline_s: for each tool.

    Returns:
        A report for each tool, or None where compute-sanitizer is not installed.

    Raises:
        WorkerFailed: it could not be run, or ended without having run the program, and found nothing.
        DeviceUnavailable: the GPU's lease was not to be had.
    """
    program = find_sanitizer()
    if program is None:
        return None
    with tempfile.TemporaryDirectory(prefix="pallas_evo-sanitizer-") as folder:
        output = artefact.workload.output
        spec = {"module": artefact.module, "inputs": len(inputs), "output": [list(output.shape), output.dtype]}
        Path(folder, "spec.json").write_text(json.dumps(spec))
        for index, array in enumerate(inputs):
            np.save(Path(folder, f"input{index}.npy"), array, allow_pickle=False)
        return tuple(_run(program, tool, Path(folder), deadline_s) for tool in tools)


def _run(program: Path, tool: str, folder: Path, deadline_s: float) -> Report:
    log, token = folder / f"{tool}.log", secrets.token_hex(8)
    line = [
        str(program), "--tool", tool, "--error-exitcode", str(FOUND), "--report-api-errors", "no",
        "--print-limit", str(4 * MOST_FINDINGS), "--log-file", str(log), "--target-processes", "all",
        sys.executable, "-P", "-s", "-m", CHILD, str(folder), token, str(int(deadline_s) + 1),
    ]  # fmt: skip
    start = time.monotonic()
    with (folder / f"{tool}.out").open("wb") as said, lease(shared=True):
        try:
            process = subprocess.Popen(
                line,
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=subprocess.STDOUT,
                env=_environment(folder),
                cwd=folder,
                start_new_session=True,
            )
        except OSError as error:
            raise WorkerFailed(f"{program}: compute-sanitizer could not be started ({error.strerror}).") from error
        try:
            code = process.wait(deadline_s)
        except subprocess.TimeoutExpired:
            return Report(tool=tool, errors=None, findings=(), seconds=round(time.monotonic() - start, 2))
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    seconds = round(time.monotonic() - start, 2)
    errors, findings = parse_report(_head(log))
    if code == FOUND:
        return Report(tool=tool, errors=max(errors, 1), findings=findings, seconds=seconds)
    ran = folder / "ran"
    if code != 0 or not ran.is_file() or ran.read_text() != token:
        last = _head(folder / f"{tool}.out")[-600:].strip() or _head(log)[-600:].strip()
        raise WorkerFailed(f"{NAME} {tool} ended with code {code} and no finding; it said: {last or 'nothing'}")
    return Report(tool=tool, errors=0, findings=(), seconds=seconds)


def parse_report(text: str) -> tuple[int, tuple[str, ...]]:
    """(errors by the last summary line, the first findings) of a tool's report, whatever the text is.

    A finding is a line that says what was wrong, with the place where it was.
    """
    errors, findings = 0, list[str]()
    for raw in text[:REPORT_BYTES].splitlines():
        match = _LINE.match(raw)
        if match is None:
            continue
        line = match.group(1)
        summary = re.match(r"(?:ERROR|RACECHECK) SUMMARY: (\d{1,9}) ", f"{line} ")
        if summary:
            errors = int(summary.group(1))
        elif re.match(r"\s+at \S", line) and findings and " at " not in findings[-1]:
            findings[-1] = _clean(f"{findings[-1]} {line.strip()}")
        elif not _NO_FINDING.match(line) and len(findings) < MOST_FINDINGS:
            findings.append(_clean(line))
    return errors, tuple(findings)


def _clean(line: str) -> str:
    return re.sub(r"0x[0-9a-fA-F]+", "0x...", printable(line.strip()))[:240]


def _head(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return printable(file.read(REPORT_BYTES).decode("utf-8", "replace"))
    except OSError:
        return ""


def _environment(folder: Path) -> dict[str, str]:
    """Nothing of ours but what CUDA needs; every buffer is an allocation of its own, or accesses past one land in
    another of the same pool and nothing is seen."""
    kept = {name: os.environ[name] for name in _PASSED if name in os.environ}
    return {
        **kept,
        "CUDA_VISIBLE_DEVICES": kept.get("CUDA_VISIBLE_DEVICES", "0"),
        "PATH": os.environ.get("PATH", "/usr/bin:/bin"),
        "HOME": str(folder),
        "TMPDIR": str(folder),
        "PYTHONPATH": os.pathsep.join(
            dict.fromkeys([str(Path(__file__).resolve().parents[2]), *filter(None, sys.path)])
        ),
        "JAX_PLATFORMS": "cuda",
        "JAX_ENABLE_COMPILATION_CACHE": "false",
        "XLA_PYTHON_CLIENT_PREALLOCATE": "false",
        "XLA_PYTHON_CLIENT_ALLOCATOR": "platform",
        "TF_CPP_MIN_LOG_LEVEL": "2",
    }
