"""Supervision: deadlines, floods, bombs, frames that lie, and what is left afterwards (nothing)."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path

import pytest
from jailed import DEADLINE_S, WORKING, assert_nothing_left, levels, run

from pallas_evo.errors import JailUnavailable, WorkerFailed
from pallas_evo.jail import Ended, Worker
from pallas_evo.jail.processes import marked

SLACK_S = 5.0

# name -> (code, the reasons that it may end with)
BOMBS = {
    "endless loop": ("while True: pass", {"timeout"}),
    "endless loop that ignores signals": (
        "import signal\nfor s in range(1, 32):\n  try: signal.signal(s, signal.SIG_IGN)\n  except OSError: pass\n"
        "while True: pass",
        {"timeout"},
    ),
    "sleep": ("import time; time.sleep(1000)", {"timeout"}),
    "exit": ("import os; os._exit(0)", {"exited"}),
    "exit with threads": (
        "import os, threading, time\n"
        "[threading.Thread(target=time.sleep, args=(99,)).start() for _ in range(9)]\nos._exit(3)",
        {"exited"},
    ),
    "abort": ("import os; os.abort()", {"exited"}),
    "kill itself": ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", {"exited"}),
    "crash": ("import ctypes; ctypes.string_at(0)", {"exited"}),
    "output flood": ("import sys\nwhile True: sys.stdout.write('x' * 65536)", {"timeout"}),
    "error flood": ("import os\nwhile True: os.write(2, b'y' * 65536)", {"timeout"}),
    "file flood": (
        "import itertools\nfor n in itertools.count(): open(str(n), 'w').write('z')",
        {"scratch"},
    ),
    "disk flood": (
        "import itertools\nfor n in itertools.count(): open(str(n), 'wb').write(bytes(1 << 20))",
        {"scratch", "exited"},
    ),
    "deep folders": (
        "import os\nwhile True:\n  os.mkdir('d'); os.chdir('d')",
        {"scratch"},
    ),
    "thread bomb": (
        "import threading, time\nthreading.stack_size(65536)\n"
        "while True: threading.Thread(target=time.sleep, args=(99,)).start()",
        {"threads"},
    ),
    "closed pipe": ("import os\nos.closerange(3, 200)\nimport time\ntime.sleep(1000)", {"closed"}),
    "closed output": ("import os\nos.close(1); os.close(2)\nimport time\ntime.sleep(1000)", {"timeout"}),
    "huge frame announced": (
        "import os, struct\nfor fd in range(3, 20):\n  try: os.write(fd, struct.pack('>Q', 1 << 62) + b'x')\n"
        "  except OSError: pass\nimport time\ntime.sleep(1000)",
        {"too_large"},
    ),
    "part of a frame": (
        "import os, struct\nfor fd in range(3, 20):\n  try: os.write(fd, struct.pack('>Q', 1000) + b'x')\n"
        "  except OSError: pass\nimport time\ntime.sleep(1000)",
        {"timeout"},
    ),
    "a frame by the drop": (
        "import os, struct, time\nout = None\nfor fd in range(3, 20):\n"
        "  try: os.write(fd, struct.pack('>Q', 1000)); out = fd\n  except OSError: pass\n"
        "while True:\n  os.write(out, b'x'); time.sleep(0.5)",
        {"timeout"},
    ),
}


@pytest.mark.parametrize("name", BOMBS)
@levels
def test_bomb_ends_within_its_deadline_and_leaves_nothing(level, name):
    code, reasons = BOMBS[name]
    deadline_s = 1.0 if reasons == {"timeout"} else DEADLINE_S
    ran = run(code, level, deadline_s=deadline_s, output_bytes=10_000, scratch_bytes=8 << 20)
    assert isinstance(ran.answer, Ended)
    assert ran.answer.reason in reasons
    assert ran.seconds < deadline_s + SLACK_S
    assert len(ran.output_text) <= 10_000
    assert_nothing_left(ran)


@levels
def test_memory_bomb_is_stopped_by_its_limit(level):
    code = "import mmap\nkept = [bytearray(64 << 20) for _ in range(1000)]"
    ran = run(code, level, memory_bytes=2 << 30)
    assert isinstance(ran.answer, Ended) or b'"memory"' in ran.answer
    assert_nothing_left(ran)


@levels
def test_cpu_limit(level):
    ran = run("while True: pass", level, deadline_s=20, cpu_s=3)
    assert isinstance(ran.answer, Ended)
    assert (ran.answer.reason, ran.answer.signal) == ("exited", "SIGXCPU")


@levels
def test_what_is_printed_is_kept_up_to_the_cap_and_made_printable(level):
    ran = run("print('a\\x1b[31mb\\x00', end='', flush=True)\nimport sys; print('error', file=sys.stderr)", level)
    assert "a\\x1b[31mb\\x00" in ran.output_text
    assert "error" in ran.output_text
    assert "\x1b" not in ran.output_text


@levels
def test_it_dies_with_its_parent_however_the_parent_ends(level):
    script = textwrap.dedent(f"""
        import threading, time
        from pallas_evo.jail import Worker
        made = []
        # started by a thread that ends: the child must outlive the thread, and not the process
        starter = threading.Thread(target=lambda: made.append(Worker("pallas_evo.tracing.child", _level={level!r})))
        starter.start(); starter.join()
        assert made[0].receive(60, 16) == b"R"
        made[0].send(b'{{"source": "while True: pass", "force_triton": false, "workloads": []}}')
        time.sleep(0.5)
        assert made[0]._process.poll() is None, "died with the thread"
        print(made[0].token, made[0].scratch, flush=True)
        time.sleep(100)
    """)
    root = Path(__file__).parents[3]
    parent = subprocess.Popen(
        [sys.executable, "-c", script],
        stdout=subprocess.PIPE,
        text=True,
        cwd=root,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(root), *sys.path])},
    )
    assert parent.stdout is not None
    token, folder = parent.stdout.readline().split()
    assert marked(token)
    parent.send_signal(signal.SIGKILL)
    parent.wait()
    end = time.monotonic() + SLACK_S
    while marked(token) and time.monotonic() < end:
        time.sleep(0.05)
    assert marked(token) == []
    os.rmdir(folder)  # the one thing that nobody is left to remove: an empty folder
    parent.stdout.close()


def test_unjailed_children_are_killed_with_what_they_started():
    code = """
import os, sys, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        while True: time.sleep(1)
    os._exit(0)
while True: time.sleep(1)
"""
    with Worker("pallas_evo.tracing.child", jailed=False) as worker:
        assert worker.receive(60, 16) == b"R"
        worker.send(json.dumps({"source": code, "force_triton": False, "workloads": []}).encode())
        answer = worker.receive(1.5, 100)
        assert isinstance(answer, Ended)
    assert worker.level == "none"
    assert marked(worker.token) == []


def test_without_any_level_a_jail_is_refused_unless_allowed(monkeypatch):
    monkeypatch.setattr("pallas_evo.jail.levels.level", lambda: "none")
    with pytest.raises(JailUnavailable, match="--allow-unjailed"):
        Worker("pallas_evo.tracing.child")
    with Worker("pallas_evo.jail.selftest", allow_unjailed=True) as worker:
        got_through = worker.receive(30, 10_000)
        assert worker.level == "none"
    assert b"socket" in got_through  # the self-test does find what is open


def test_a_child_that_cannot_start_is_our_failure():
    with Worker("pallas_evo.no_such.module") as worker, pytest.raises((WorkerFailed, JailUnavailable), match="no_such"):
        worker.receive(5, 10)


def test_interrupt_from_another_thread():
    with Worker("pallas_evo.tracing.child", _level=WORKING[0] if WORKING else None, allow_unjailed=True) as worker:
        assert worker.receive(60, 16) == b"R"
        threading.Timer(0.3, worker.interrupt).start()
        answer = worker.receive(20, 16)
    assert isinstance(answer, Ended)
    assert answer.interrupted


def test_no_descriptor_leaks():
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(3):
        with Worker("pallas_evo.jail.selftest", allow_unjailed=True) as worker:
            worker.receive(30, 10_000)
    assert len(os.listdir("/proc/self/fd")) == before
