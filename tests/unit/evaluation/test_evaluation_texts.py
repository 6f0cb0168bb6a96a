"""Intermediate texts in an evaluation: one size, of accepted candidates, and none that is cut."""

from __future__ import annotations

import dataclasses

import pytest

from pallas_evo.config import Config, load_config
from pallas_evo.errors import ConfigError
from pallas_evo.evaluation import evaluate, texts
from pallas_evo.paths import seed_file
from pallas_evo.tasks import dims_of, get_task, workload
from pallas_evo.types import Artefact, Kernel

TASK = get_task("L1/relu")
KERNEL = Kernel(name="relu", grid=(4, 2, 1), num_warps=4, num_stages=1, ttir="tt.func @relu\n")
ARTEFACT = Artefact(
    workload=workload(TASK, dims_of(TASK, "medium"), "medium"),
    module="module {}\n",
    sha256="0" * 64,
    kernels=(KERNEL, dataclasses.replace(KERNEL, name="other")),
    moved_bytes=0,
)
PTX = {("medium", "sm_80"): ("one", "two"), ("large", "sm_80"): ("not of this size",)}


def with_keep(keep: str, **limits: int) -> Config:
    config = Config()
    config.texts = dataclasses.replace(config.texts, keep=keep, **limits)
    return config


def test_the_texts_of_one_size():
    found = texts.collect(Config(), ARTEFACT, "{ a }", PTX, correct=True)
    assert set(found) == {"jaxpr", "stablehlo", "triton_ir", "ptx_sm_80"}
    assert found["stablehlo"] == ARTEFACT.module
    assert found["ptx_sm_80"] == "one\ntwo"
    assert found["triton_ir"].count("tt.func @relu") == 2
    assert "// other: grid (4, 2, 1), num_warps 4, num_stages 1\n" in found["triton_ir"]


@pytest.mark.parametrize(
    ("keep", "correct", "any_kept"),
    [
        ("accepted", True, True),
        ("accepted", False, False),
        ("all", False, True),
        ("none", True, False),
    ],
)
def test_whose_texts_are_kept(keep, correct, any_kept):
    assert bool(texts.collect(with_keep(keep), ARTEFACT, None, PTX, correct=correct)) is any_kept


def test_what_is_over_the_limit_is_left_out_whole():
    found = texts.collect(with_keep("all", bytes=len(ARTEFACT.module)), ARTEFACT, "{ a }", PTX, correct=True)
    assert set(found) == {"jaxpr", "stablehlo", "ptx_sm_80"}


def test_a_candidate_without_an_artefact_has_none():
    assert texts.collect(with_keep("all"), None, None, {}, correct=False) == {}


def test_which_size():
    assert texts.text_size(["small", "variant", "medium", "large"], ["large"]) == "medium"
    assert texts.text_size(["small", "variant", "large"], ["large"]) == "large"
    assert texts.text_size(["small", "variant"], []) == "small"


def test_a_policy_that_is_none():
    with pytest.raises(ConfigError, match=r"texts\.keep"):
        texts.wanted(with_keep("some"))


def test_an_evaluation_carries_them():
    config = load_config(overrides=["judging.medium_seeds=0", "judging.timed_sizes=[]", "judging.small_seeds=1"])
    verdict = evaluate(seed_file(TASK.id).read_text(), TASK, target="cpu", config=config)
    assert verdict.correct
    assert verdict.texts_size == "small"
    assert "pallas_call" in verdict.texts["jaxpr"]
    assert "stablehlo.custom_call" in verdict.texts["stablehlo"]
    assert "tt.store" in verdict.texts["triton_ir"]
    assert "ptx_sm_80" not in verdict.texts  # only timed sizes are compiled


def test_a_refused_one_carries_none():
    config = load_config(overrides=["judging.medium_seeds=0", "judging.timed_sizes=[]", "judging.small_seeds=1"])
    wrong = seed_file(TASK.id).read_text().replace("jnp.maximum(", "1.5 * jnp.maximum(")
    verdict = evaluate(wrong, TASK, target="cpu", config=config)
    assert not verdict.correct
    assert (verdict.texts, verdict.texts_size) == ({}, None)
