"""The Jaxpr that a tracer sends last: the candidate's own word, kept as text, and no verdict hangs on it."""

from __future__ import annotations

import pytest

from pallas_evo.config import TraceLimits
from pallas_evo.paths import seed_file
from pallas_evo.tasks import dims_of, get_task, workload
from pallas_evo.tracing import Traced, trace

TASK = get_task("L1/relu")
SIZES = tuple(workload(TASK, dims_of(TASK, size), size) for size in ("small", "medium"))
SOURCE = seed_file(TASK.id).read_text()
LIMITS = TraceLimits(deadline_s=20.0)

# A candidate that has hold of the child's module sends in place of the text whatever it likes.
FORGED = """
import typing
child = typing.sys.modules["pallas_evo.tracing.child"]
child._text = lambda jaxpr, most_bytes: %s
"""


def traced(source: str = SOURCE, **options: object) -> Traced:
    answer = trace(source, TASK, SIZES, LIMITS, **options)
    assert isinstance(answer, Traced)
    return answer


@pytest.mark.parametrize("place", range(2))
def test_it_is_of_the_workload_that_was_asked_for(place):
    text = traced(jaxpr_of=place).jaxpr
    assert text is not None
    assert "pallas_call" in text
    assert f"f32[{SIZES[place].inputs[0].shape[0]},{SIZES[place].inputs[0].shape[1]}]" in text


def test_nobody_asked():
    assert traced().jaxpr is None


def test_one_that_is_too_long_is_left_out():
    length = len(traced(jaxpr_of=0).jaxpr or "")
    assert len(traced(jaxpr_of=0, jaxpr_bytes=length).jaxpr or "") == length
    assert traced(jaxpr_of=0, jaxpr_bytes=length - 1).jaxpr is None


FORGERIES = {
    "a gigabyte": ("b'x' * (1 << 30)", None),
    "a byte too many": ("b'x' * 1025", None),
    "bytes that are no text": (r"b'\xff\xfe ok \x00 \xed\xb2\x80'", "\ufffd\ufffd ok \0 \ufffd\ufffd\ufffd"),
    "another program": ("b'module { not the artefact }'", "module { not the artefact }"),
    "nothing": ("b''", None),
    "an exception": ("1 / 0", None),
    "no answer": ("typing.sys.modules['time'].sleep(99)", None),
    "the end": ("typing.sys.modules['os']._exit(0)", None),
}


@pytest.mark.parametrize("name", FORGERIES)
def test_what_a_candidate_makes_of_it_changes_nothing_else(name):
    sent, kept = FORGERIES[name]
    answer = traced(FORGED % sent + SOURCE, jaxpr_of=1, jaxpr_bytes=1024)
    assert answer.jaxpr == kept
    assert [len(one) for one in answer.modules] == [len(one) for one in answer.second]
    assert all(module.startswith(b"ML\xefR") for module in answer.modules)
    assert len(answer.modules) == len(SIZES)
