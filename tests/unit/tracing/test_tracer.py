"""The tracer: honest kernels come out twice as bytes, mistakes as sentences, attacks as rejections."""

from __future__ import annotations

import json
import os
import socket
import time
from pathlib import Path

import pytest

from pallas_evo.config import TraceLimits
from pallas_evo.jail import LEVELS, level, probe
from pallas_evo.paths import original_file, seed_file
from pallas_evo.reasons import REASONS
from pallas_evo.tasks import dims_of, get_task, workload
from pallas_evo.tracing import Traced, Tracers, trace, trace_original
from pallas_evo.types import Rejection

TASK = get_task("L1/matmul")
SIZES = tuple(workload(TASK, dims_of(TASK, size), size) for size in ("small", "medium"))
SOURCE = seed_file(TASK.id).read_text()
LIMITS = TraceLimits(deadline_s=20.0)
SHORT = TraceLimits(deadline_s=2.0, memory_bytes=3 << 30, output_bytes=5000)


def refused(source: str, limits: TraceLimits = LIMITS) -> Rejection:
    answer = trace(source, TASK, SIZES, limits)
    assert isinstance(answer, Rejection)
    assert answer.reason in REASONS
    assert answer.message
    assert answer.message.replace("\n", "").replace("\t", "").isprintable()
    return answer


def first_in_kernel(line: str) -> str:
    return with_change("    m, n = x.shape[0]", f"    {line}\n    m, n = x.shape[0]")


def with_change(old: str, new: str) -> str:
    assert old in SOURCE
    return SOURCE.replace(old, new)


def test_an_honest_kernel_comes_out_twice_and_both_are_the_same_program():
    answer = trace("print('hello')\n" + SOURCE, TASK, SIZES, LIMITS)
    assert isinstance(answer, Traced)
    assert len(answer.modules) == len(answer.second) == len(SIZES)
    assert all(module.startswith(b"ML\xefR") for module in (*answer.modules, *answer.second))
    assert answer.modules[0] != answer.modules[1]
    # The two differ in nothing but the process that they came from, and each is in the order of the workloads.
    assert [len(module) for module in answer.modules] == [len(module) for module in answer.second]
    assert answer.output_text.strip() == "hello"
    assert answer.jail == level()
    assert answer.device_kind == LIMITS.device_kind


@pytest.mark.parametrize("kind", ["NVIDIA H100 80GB HBM3", "NVIDIA H200"])
def test_any_named_gpu(kind):
    answer = trace(SOURCE, TASK, SIZES[:1], TraceLimits(device_kind=kind))
    assert isinstance(answer, Traced)
    assert answer.device_kind == kind


def test_tracers_started_ahead_serve_one_call():
    with Tracers(LIMITS) as pair:
        pair.ready()
        assert isinstance(trace(SOURCE, TASK, SIZES, LIMITS, tracers=pair), Traced)
        with pytest.raises(ValueError, match="Start a new pair"):
            trace(SOURCE, TASK, SIZES, LIMITS, tracers=pair)


def test_a_tpu_original_is_lowered_by_triton():
    task = get_task("L1/relu")
    sizes = [workload(task, dims_of(task, "small"), "small")]
    answer = trace_original(original_file(task.id).read_text(), task, sizes, LIMITS)
    assert isinstance(answer, Traced)
    assert b"xla.gpu.triton" in answer.modules[0]


MISTAKES = {
    "not a power of two": (
        with_change("BLOCK_N = 64", "BLOCK_N = 96"),
        "lowering_error",
        ["BLOCK_N = 96", "line 25", "power of two", "64 or 128"],
    ),
    "pl.load": (with_change("plgpu.load(", "pl.load("), "trace_error", ["pl.load", "plgpu.load"]),
    "shapes": (
        with_change("jnp.dot(x, y)", "jnp.dot(x[:32], y)"),
        "trace_error",
        ["line 41", "incompatible shapes", "jnp.dot(x[:32], y)"],
    ),
    "no such primitive": (with_change("jnp.dot(x, y)", "jnp.sort(jnp.dot(x, y))"), "lowering_error", ["`sort`"]),
    "traced value": (
        with_change("    return pl.pallas_call", "    if x[0, 0] > 0:\n        return x\n    return pl.pallas_call"),
        "trace_error",
        ["value of a traced array", "line 49"],
    ),
    "callback": (
        with_change("    return pl.pallas_call", "    jax.debug.print('x')\n    return pl.pallas_call"),
        "lowering_error",
        ["outside Pallas Triton kernels"],
    ),
    "output shape": (
        with_change("ShapeDtypeStruct((m, n)", "ShapeDtypeStruct((n, m + 1)"),
        "signature",
        ["float32[256, 256]", "float32[256, 257]"],
    ),
    "tuple": (with_change("    )(x, y)", "    )(x, y),"), "signature", ["not a tuple"]),
    "too few parameters": (with_change("def kernel(x, y)", "def kernel(x)"), "arity", ["kernel(x, y)"]),
    "no kernel": (with_change("def kernel(", "def kernels("), "no_kernel", ["kernel(x, y)"]),
    "syntax": (SOURCE + "\n)(\n", "syntax", ["line 59"]),
    "import": ("import numpy\nnumpy.no_such\n" + SOURCE, "import_error", ["line 2", "numpy.no_such"]),
    "no message": (
        first_in_kernel("assert False"),
        "trace_error",
        ["line 48"],
    ),
    "exit": ("raise SystemExit(0)\n" + SOURCE, "import_error", ["SystemExit"]),
    "endless recursion": (
        first_in_kernel("return kernel(x, y)"),
        "trace_error",
        [],
    ),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_becomes_a_sentence(name):
    source, reason, words = MISTAKES[name]
    answer = refused(source)
    assert answer.reason == reason
    assert [word for word in words if word not in answer.message] == [], answer.message


WAIT = "\nimport time\ntime.sleep(99)"
SEND = """
import os, struct, json
def send(payload):
    for fd in range(3, 20):
        try:
            os.write(fd, struct.pack(">Q", len(payload)) + payload)
        except OSError:
            pass
"""

ATTACKS = {
    "loop at import": ("while True: pass", {"timeout"}),
    "loop in trace": (first_in_kernel("while True: pass"), {"timeout"}),
    "unrolled kernel": (
        with_change(
            "        return total + jnp.dot(x, y)",
            "        for _ in range(200_000): total = total * 1.5 + 1\n        return total",
        ),
        {"timeout", "memory"},
    ),
    "large constant": (
        "import numpy\nBIG = numpy.random.default_rng(0).standard_normal((4096, 4096)).astype('float32')\n"
        + with_change(")(x, y)", ")(x + jnp.asarray(BIG)[: x.shape[0], : x.shape[1]], y)"),
        {"artefact_size"},
    ),
    "memory at import": ("KEPT = [bytearray(64 << 20) for _ in range(10_000)]", {"memory", "timeout"}),
    "one large array": ("import numpy\nX = numpy.ones(1 << 40)", {"memory"}),
    "memory in trace": (
        first_in_kernel("kept = [jnp.ones((4096, 4096)) + i for i in range(10_000)]"),
        {"memory", "timeout", "no_artefact"},
    ),
    "fork bomb": ("import os\nwhile True: os.fork()", {"import_error"}),
    "fork bomb that goes on": (
        "import os\nwhile True:\n  try: os.fork()\n  except OSError: pass",
        {"timeout"},
    ),
    "output flood": ("while True: print('x' * 10_000)", {"timeout"}),
    "exit after a verdict": (
        "import os\nfor n in ('correct.json', 'metrics.json'):\n  open(n, 'w').write('{}')\nos._exit(0)",
        {"no_artefact"},
    ),
    "exit at once": ("import os; os._exit(0)", {"no_artefact"}),
    "crash": ("import ctypes; ctypes.string_at(0)", {"no_artefact"}),
    "closed pipe": ("import os, time\nos.closerange(3, 99)\ntime.sleep(99)", {"no_artefact"}),
    "garbage frame": (SEND + "send(b'rubbish')" + WAIT, {"malformed"}),
    "empty frame": (SEND + "send(b'')" + WAIT, {"malformed"}),
    "forged message": (
        SEND + "send(b'E' + json.dumps({'stage': ['x'], 'message': {'a': 1}, 'line': -5, 'type': 7}).encode())" + WAIT,
        {"malformed"},
    ),
    "deep message": (SEND + "send(b'E' + b'[' * 60_000)" + WAIT, {"malformed"}),
    "message that steers a terminal": (
        SEND
        + "send(b'E' + json.dumps({'stage': 'trace', 'message': '\\x1b[2J\\u202e' * 500, 'line': 10**30}).encode())\n"
        "import time\ntime.sleep(99)",
        {"trace_error"},
    ),
    "huge frame": (
        SEND + "for fd in range(3, 20):\n  try: os.write(fd, b'\\x7f' + b'\\xff' * 7)\n  except OSError: pass" + WAIT,
        {"artefact_size"},
    ),
    "module by hand": (
        "import typing\nos = typing.sys.modules['os']\nos.system('true')\nos.execv('/bin/sh', ['sh'])",
        {"import_error"},
    ),
    "hostile message": (
        "class E(Exception):\n  def __str__(self):\n    while True: pass\nraise E()",
        {"timeout"},
    ),
}


@pytest.mark.parametrize("name", ATTACKS)
def test_an_attack_is_rejected_in_time_and_leaves_nothing(name, tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))  # where scratch folders are made
    source, reasons = ATTACKS[name]
    start = time.monotonic()
    answer = refused(source, SHORT)
    seconds = time.monotonic() - start
    assert answer.reason in reasons, answer
    assert seconds < SHORT.deadline_s + 5 + 3  # and the start of two processes, on a machine that others use too
    assert _survivors() == []
    assert list(tmp_path.iterdir()) == []
    assert len(answer.message) < 3000


def test_after_an_attack_the_next_candidate_is_traced():
    for name in ("fork bomb that goes on", "exit after a verdict", "huge frame"):
        refused(ATTACKS[name][0], SHORT)
        assert isinstance(trace(SOURCE, TASK, SIZES, LIMITS), Traced)


@pytest.mark.parametrize("which", [level for level in LEVELS if probe(level).works])
def test_no_canary_gets_out_and_nobody_calls_the_listener(which, monkeypatch):
    monkeypatch.setattr("pallas_evo.jail.levels.level", lambda: which)
    monkeypatch.setenv("OPENAI_API_KEY", "canary-environment")
    canary = Path.home() / f"canary-{os.getpid()}"
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(0.01)
        attack = f"""
import typing
os = typing.sys.modules["os"]
found = [dict(os.environ)]
def look(path):
    try:
        found.append(open(path, "rb").read())
    except Exception as error:
        pass
for path in ({str(canary)!r}, "/proc/{os.getpid()}/environ", f"/proc/{{os.getppid()}}/environ", "/proc/1/environ"):
    look(path)
try:
    import socket
    socket.create_connection(("127.0.0.1", {listener.getsockname()[1]}), 1).sendall(b"hello")
except OSError:
    pass
print(found)
"""
        canary.write_text("canary-home")
        try:
            answer = trace(attack + SOURCE, TASK, SIZES, LIMITS)
        finally:
            canary.unlink()
        with pytest.raises(TimeoutError):
            listener.accept()
    assert isinstance(answer, Traced)
    assert answer.jail == which
    assert "PALLAS_EVO_WORKER" in answer.output_text
    assert "canary" not in answer.output_text.replace(canary.name, "")
    assert not any(b"canary" in module for module in (*answer.modules, *answer.second))


def test_a_child_that_cannot_load_jax_is_our_failure_and_no_score():
    from pallas_evo.errors import PallasEvoError

    with pytest.raises(PallasEvoError):
        trace(SOURCE, TASK, SIZES, TraceLimits(memory_bytes=200 << 20))


def test_requests_hold_no_names_of_sizes():
    from pallas_evo.tracing.tracer import _request

    request = json.loads(_request(SOURCE, SIZES, LIMITS, False))
    assert all(set(item) == {"inputs", "output"} for item in request["workloads"])


def _survivors() -> list[int]:
    """Processes of this one's workers: their parent is this process, or nobody."""
    found = []
    for name in os.listdir("/proc"):
        if name.isdecimal():
            try:
                parent = int(Path(f"/proc/{name}/stat").read_text().rpartition(")")[2].split()[1])
                marked = b"PALLAS_EVO_WORKER" in Path(f"/proc/{name}/environ").read_bytes()
            except OSError:
                continue
            if marked and parent in (os.getpid(), 1):
                found.append(int(name))
    return found
