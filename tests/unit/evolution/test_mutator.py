"""The offline mutator works on every seed, never proposes twice, and learns."""

from __future__ import annotations

import numpy as np
import pytest

from pallas_evo.evolution.blocks import identity, smallest_edit, split_block
from pallas_evo.evolution.knobs import knobs_of, with_knobs
from pallas_evo.evolution.model import ScoreModel
from pallas_evo.evolution.moves import moves_of, tags_of
from pallas_evo.evolution.mutator import OfflineMutator
from pallas_evo.evolution.rewrites import rewrites_of
from pallas_evo.evolution.service import answer, kind_of, scored_programs
from pallas_evo.paths import seed_file
from pallas_evo.tasks import load_tasks

MUTANTS = 8
TASKS = [task.id for task in load_tasks()]


def seed(task_id: str) -> str:
    return seed_file(task_id).read_text(encoding="utf-8")


@pytest.mark.parametrize("task_id", TASKS)
def test_every_seed_has_distinct_valid_mutants_inside_its_block(task_id):
    source = seed(task_id)
    before, block, after = split_block(source)
    mutator, seen = OfflineMutator(seed=3), {identity(block)}
    for _ in range(MUTANTS):
        mutant = mutator.mutate(source)
        assert mutant is not None
        compile(mutant.source, task_id, "exec")
        assert mutant.source.startswith(before)
        assert mutant.source.endswith(after)
        assert identity(mutant.block) not in seen
        seen.add(identity(mutant.block))
        search, replace = smallest_edit(block, mutant.block)
        assert f"\n{block}".count(f"\n{search}\n") == 1
        assert block.replace(search, replace, 1) == mutant.block


@pytest.mark.parametrize("task_id", TASKS)
def test_every_seed_has_structural_moves_and_constants(task_id):
    block = split_block(seed(task_id))[1]
    assert len({name for name, _ in moves_of(block)}) >= 2
    assert knobs_of(block)


def test_numbers_of_the_formula_are_no_knobs():
    for task_id in TASKS:
        names = set(knobs_of(split_block(seed(task_id))[1]))
        assert not names & {"CLASSES", "LETTERS", "NUM_LETTERS", "EPSILON", "UPPER", "LOWER"}


def test_a_fresh_mutator_does_not_propose_what_it_is_told_of():
    source = seed("L1/softmax")
    first = [OfflineMutator(seed=1).mutate(source).source for _ in range(1)]
    again = OfflineMutator(seed=1)
    again.exclude(first)
    assert identity(split_block(again.mutate(source).source)[1]) != identity(split_block(first[0])[1])


def test_the_model_learns_which_constants_are_good():
    block = split_block(seed("L1/relu"))[1]
    model, rng = ScoreModel(), np.random.default_rng(0)
    for warps in (1, 2, 4, 8):
        for size in (64, 128, 256, 512):
            model.learn(with_knobs(block, {"NUM_WARPS": warps, "BLOCK_N": size}), 0.5 + 0.1 * np.log2(size / 64))
    good, bad = (with_knobs(block, {"NUM_WARPS": 16, "BLOCK_N": size}) for size in (1024, 32))
    draws = np.array([model.draw([good, bad], rng) for _ in range(50)])
    assert (draws[:, 0] > draws[:, 1]).mean() > 0.9


def test_recombination_takes_from_both_parents():
    block = split_block(seed("L1/matmul"))[1]
    before, _, after = split_block(seed("L1/matmul"))
    one = before + with_knobs(block, {"BLOCK_M": 128, "NUM_WARPS": 8}) + after
    other = before + with_knobs(block, {"BLOCK_N": 256, "NUM_STAGES": 4}) + after
    mutant = OfflineMutator(seed=0).mutate(one, others=[other])
    assert mutant.name.startswith("cross")


DIFF = "You MUST ... <DIFF>"
FULL = "Provide the complete ... <CODE>"
CROSS = "I.e. perform crossover between the code scripts. <CODE>"
FIX = "You are debugging and fixing an incorrect program. <CODE>"


def conversation(system: str, source: str, heading: str = "# Current program", more: str = "") -> list[dict[str, str]]:
    user = (
        f"{heading}\n\n```python\n{source}\n```\n\nCombined score to maximize: 0.80\nspeedup_over_xla: 0.8042x\n{more}"
    )
    return [{"role": "system", "content": system}, {"role": "user", "content": user}]


@pytest.mark.parametrize(("system", "kind"), [(DIFF, "diff"), (FULL, "full"), (CROSS, "cross"), (FIX, "fix")])
def test_each_kind_of_prompt_is_answered_in_its_form(system, kind):
    source = seed("L1/softmax")
    heading = "# Incorrect Program to Fix" if kind == "fix" else "# Current program"
    more = f"# Crossover Inspiration Programs\n```python\n{source}\n```\n" if kind == "cross" else ""
    messages = conversation(system, source, heading, more)
    assert kind_of(system, messages[1]["content"]) == kind
    said = answer(messages, OfflineMutator(seed=2))
    if kind == "diff":
        assert "<<<<<<< SEARCH" in said
        assert "EVOLVE-BLOCK" not in said
    else:
        code = said.split("```python\n")[1].split("```")[0]
        compile(code, "answer", "exec")
        assert code != source


def test_scores_are_read_exactly_where_they_are_printed_exactly():
    ((_, score),) = scored_programs(conversation(DIFF, seed("L1/relu"))[1]["content"])
    assert score == 0.8042


@pytest.mark.parametrize("messages", [[], [{"role": "user", "content": "hello"}], [{"role": "user"}]])
def test_a_prompt_without_a_program_gets_a_sentence(messages):
    assert "program" in answer(messages, OfflineMutator())


@pytest.mark.parametrize(
    ("task_id", "names"),
    [
        ("L1/matmul", {"k_major", "few_masks"}),
        ("L1/batched_matmul", {"k_major", "few_masks"}),
        ("L1/softmax", {"rows_at_once", "reciprocal", "exp2"}),
        ("L1/layernorm", {"rows_at_once", "one_pass", "reciprocal"}),
        ("L3/flash_attention", {"k_major", "reciprocal", "exp2", "few_masks"}),
    ],
)
def test_rewrites_are_found_once_and_change_what_they_say(task_id, names):
    block = split_block(seed(task_id))[1]
    made = list(rewrites_of(block))
    assert names <= {name for name, _ in made}
    assert len({identity(form) for _, form in made}) == len(made)
    for name, form in made:
        assert set(tags_of(form)) - set(tags_of(block)) or name == "reciprocal"  # some seeds have one already


def test_the_model_learns_from_refusals():
    block = split_block(seed("L1/relu"))[1]
    model, rng = ScoreModel(), np.random.default_rng(0)
    model.learn(block, 1.0)
    for size in (512, 1024):
        model.learn(with_knobs(block, {"BLOCK_N": size}), 0.0)
    near, far = (with_knobs(block, {"BLOCK_N": size}) for size in (2048, 64))
    draws = np.array([model.draw([near, far], rng) for _ in range(50)])
    assert (draws[:, 0] < draws[:, 1]).mean() > 0.8
