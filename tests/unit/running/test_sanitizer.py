"""compute-sanitizer without one: a script in its place, reports as it writes them, and reports that are garbage."""

from __future__ import annotations

import os
import stat
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pallas_evo import tasks
from pallas_evo.errors import WorkerFailed
from pallas_evo.running import sanitizer
from pallas_evo.running.sanitizer import FOUND, MOST_FINDINGS, find_sanitizer, parse_report, sanitize
from pallas_evo.types import Artefact

MEMCHECK = """========= COMPUTE-SANITIZER
========= Invalid __global__ read of size 4 bytes
=========     at relu_tile+0x190
=========     by thread (0,0,0) in block (3,0,0)
=========     Address 0x7f61ae000000 is out of bounds
=========     and is 1 bytes after the nearest allocation at 0x7f61adc00000 of size 4194304 bytes
=========     Saved host backtrace up to driver entry point at kernel launch time
=========         Host Frame: [0x2b1234] in libcuda.so.1
=========
========= Invalid __global__ write of size 4 bytes
=========     at relu_tile+0x1a0
=========
========= ERROR SUMMARY: 2 errors
"""
INITCHECK = """========= COMPUTE-SANITIZER
========= Uninitialized __global__ memory read of size 4 bytes
=========     at 0x70 in sum_rows
=========     by thread (5,0,0) in block (0,0,0)
=========
========= ERROR SUMMARY: 1 error
"""
CLEAN = "========= COMPUTE-SANITIZER\n========= ERROR SUMMARY: 0 errors\n"


def test_a_report_says_what_was_wrong_and_where():
    errors, findings = parse_report(MEMCHECK)
    assert errors == 2
    assert findings == (
        "Invalid __global__ read of size 4 bytes at relu_tile+0x...",
        "Invalid __global__ write of size 4 bytes at relu_tile+0x...",
    )
    assert parse_report(INITCHECK) == (
        1,
        ("Uninitialized __global__ memory read of size 4 bytes at 0x... in sum_rows",),
    )


def test_a_clean_report_has_no_finding():
    assert parse_report(CLEAN) == (0, ())


@pytest.mark.parametrize(
    "text",
    [
        "",
        "\0" * 100,
        "=========",
        "=========\n" * 5,
        "========= ERROR SUMMARY: many errors",
        "========= ERROR SUMMARY: -3 errors",
        "========= ERROR SUMMARY: 99999999999999999999 errors",
        "=========     at nowhere",
        "========= Internal Sanitizer Error",
        "========= Error: Target application terminated before first instrumented API call",
        "Invalid __global__ read of size 4",
    ],
)
def test_garbage_is_no_finding(text):
    assert parse_report(text) == (0, ())


def test_a_report_without_end_is_cut():
    _, findings = parse_report("========= Invalid \x1b[31m" + "x" * 500 + "\n" + "========= Invalid read\n" * 100_000)
    assert len(findings) == MOST_FINDINGS
    assert all(len(line) <= 240 and line.isprintable() for line in findings)


@given(st.text())
def test_any_text_can_be_read(text):
    errors, findings = parse_report("\n".join(f"========= {line}" for line in text.splitlines()) + text)
    assert errors >= 0
    assert len(findings) <= MOST_FINDINGS


# ---- the run -----------------------------------------------------------------------------------------------------

SCRIPT = """#!{python}
import os, sys, time
args = sys.argv[1:]
option = lambda name: args[args.index(name) + 1]
folder, token = args[-3], args[-2]
assert args[-4] == "pallas_evo.running.sanitizer_child", args
assert "SECRET_KEY" not in os.environ
assert os.environ["XLA_PYTHON_CLIENT_ALLOCATOR"] == "platform"
assert os.path.exists(os.path.join(folder, "spec.json")) and os.path.exists(os.path.join(folder, "input0.npy"))
open(option("--log-file"), "w").write({report!r})
if {ran!r}:
    open(os.path.join(folder, "ran"), "w").write(token)
print("what the program prints")
time.sleep({sleep})
sys.exit({code})
"""


@pytest.fixture
def artefact() -> Artefact:
    workload = tasks.workload(TASK, tasks.dims_of(TASK, "small"), "small")
    return Artefact(workload=workload, module="module {}", sha256="", kernels=(), moved_bytes=0)


TASK = tasks.get_task("L1/relu")
INPUTS = (np.zeros((4, 4), np.float32),)


@pytest.fixture
def installed(tmp_path, monkeypatch):
    """Puts a script in compute-sanitizer's place."""

    def install(report: str = CLEAN, *, ran: bool = True, code: int = 0, sleep: float = 0) -> Path:
        path = tmp_path / sanitizer.NAME
        path.write_text(SCRIPT.format(python=sys.executable, report=report, ran=ran, code=code, sleep=sleep))
        path.chmod(path.stat().st_mode | stat.S_IXUSR)
        monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
        monkeypatch.setenv("SECRET_KEY", "1")
        monkeypatch.setenv("TMPDIR", str(tmp_path))
        return path

    return install


def test_a_run_without_a_finding(installed, artefact):
    path = installed()
    assert find_sanitizer() == path
    reports = sanitize(artefact, INPUTS, tools=["memcheck", "initcheck"])
    assert reports is not None
    assert [(report.tool, report.errors, report.findings) for report in reports] == [
        ("memcheck", 0, ()),
        ("initcheck", 0, ()),
    ]


def test_a_finding_counts_by_the_exit_code(installed, artefact):
    installed(MEMCHECK, code=FOUND)
    (report,) = sanitize(artefact, INPUTS, tools=["memcheck"]) or ()
    assert report.errors == 2
    assert "Invalid __global__ read" in report.findings[0]


@pytest.mark.parametrize("text", ["", "garbage", CLEAN])
def test_a_report_that_says_nothing_does_not_undo_the_exit_code(text, installed, artefact):
    installed(text, code=FOUND)
    (report,) = sanitize(artefact, INPUTS, tools=["memcheck"]) or ()
    assert report.errors == 1


def test_a_report_alone_refuses_nothing(installed, artefact):
    installed(MEMCHECK, code=0)
    (report,) = sanitize(artefact, INPUTS, tools=["memcheck"]) or ()
    assert report.errors == 0


@pytest.mark.parametrize(("ran", "code"), [(False, 0), (True, 1), (False, 255)])
def test_a_run_that_did_not_happen_is_our_failure(ran, code, installed, artefact):
    installed(ran=ran, code=code)
    with pytest.raises(WorkerFailed, match="what the program prints"):
        sanitize(artefact, INPUTS, tools=["memcheck"])


def test_a_run_past_its_deadline_says_nothing(installed, artefact):
    installed(sleep=30)
    (report,) = sanitize(artefact, INPUTS, tools=["memcheck"], deadline_s=0.5) or ()
    assert report.errors is None


def test_where_it_is_not_installed_there_is_no_report(tmp_path, monkeypatch, artefact):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(sanitizer, "find_sanitizer", lambda: None)
    assert sanitize(artefact, INPUTS) is None


def test_a_toolkits_folder_is_looked_at(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path / "nothing"))
    monkeypatch.setenv("CUDA_HOME", str(tmp_path))
    place = tmp_path / "bin" / sanitizer.NAME
    place.parent.mkdir()
    place.write_text("")
    assert find_sanitizer() != place, "a file that cannot be run"
    place.chmod(0o755)
    assert find_sanitizer() == place
