"""Sentences: every stage has a known reason, hostile text stays harmless, known errors say what to write instead."""

from __future__ import annotations

import pytest

from pallas_evo.config import TraceLimits
from pallas_evo.jail import Ended
from pallas_evo.reasons import REASONS
from pallas_evo.tasks import dims_of, get_task, workload
from pallas_evo.tracing import teaching
from pallas_evo.tracing.teaching import Trouble, rejection

TASK = get_task("L1/relu")
SIZES = (workload(TASK, dims_of(TASK, "small"), "small"),)
SOURCE = "import jax\nBLOCK = 48  # rows\nblock = 48\n"


def words(**fields: object) -> tuple[str, str]:
    answer = rejection(Trouble.of_message(dict(fields), "", at=0), SOURCE, TASK, SIZES, TraceLimits())
    return answer.reason, answer.message


@pytest.mark.parametrize("stage", [*teaching._HANDLERS, "unheard of", ""])
@pytest.mark.parametrize("message", ["", "a" * 100_000, "\x1b[31m\x00\u202e", "%s {0} {x}"])
def test_every_stage_has_a_reason_and_a_short_printable_message(stage, message):
    reason, said = words(stage=stage, message=message, type="Error\x1b", line=2)
    assert reason in REASONS
    assert 20 < len(said) < 3000
    assert said.replace("\n", "").isprintable()


@pytest.mark.parametrize(
    "record", [{}, {"stage": None}, {"stage": "trace", "line": True}, {"stage": "trace", "message": 3}]
)
def test_fields_of_a_wrong_type_are_dropped(record):
    reason, said = words(**record)
    assert reason in REASONS
    assert "True" not in said


@pytest.mark.parametrize("reason", ["exited", "timeout", "too_large", "closed", "scratch", "threads"])
@pytest.mark.parametrize("signal", [None, "SIGKILL", "SIGSYS", "SIGXCPU", "SIGSEGV"])
def test_every_way_to_end_has_a_reason(reason, signal):
    ended = Ended(reason=reason, returncode=0, signal=signal, output_text="")
    answer = rejection(Trouble.of_end(ended, at=7), SOURCE, TASK, SIZES, TraceLimits())
    assert answer.reason in REASONS


def test_the_constant_in_question_is_named_with_its_line():
    said = words(
        stage="lower", message="size is a power of 2. Encountered an array of shape (48, 64)", type="ValueError"
    )[1]
    assert "BLOCK = 48 (line 2)" in said
    assert "32 or 64" in said


def test_without_a_constant_the_shape_is_named():
    said = words(stage="lower", message="size is a power of 2. Encountered an array of shape (33, 64)")[1]
    assert "(33, 64)" in said
    assert "mask" in said


@pytest.mark.parametrize(
    ("message", "word"),
    [
        ("module 'jax.experimental.pallas' has no attribute 'load'", "plgpu.load"),
        ("module 'jax.experimental.pallas' has no attribute 'dot'", "jnp.dot"),
        ("pl.dot was deprecated in JAX v0.11.0, and removed in JAX v0.12.0.", "jnp.dot"),
        ("cannot import name 'TPUCompilerParams' from 'jax.experimental.pallas'", "plgpu.CompilerParams"),
        ("Unimplemented primitive in Pallas Triton lowering: gather. Please file an issue", "index the ref"),
        ("Unimplemented primitive in Pallas Triton lowering: erf_inv. Please file", "`erf_inv`"),
        ("Cannot serialize code with custom calls whose targets have no compatibility guarantees", "glue"),
        ("Attempted boolean conversion of traced array", "jnp.where"),
    ],
)
def test_well_known_errors_say_what_to_write_instead(message, word):
    assert word in words(stage="lower", message=message)[1]


def test_an_error_without_a_message_gets_a_sentence_and_its_line():
    said = words(stage="trace", message="", type="AssertionError", line=2)[1]
    assert "AssertionError without a message" in said
    assert "line 2 (`BLOCK = 48  # rows`)" in said
