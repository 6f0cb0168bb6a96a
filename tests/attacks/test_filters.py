"""Each filter has an output that it alone refuses, and accepts honest sparse and small ones; numerics take no part."""

from __future__ import annotations

import ast
from collections.abc import Callable

import numpy as np
import pytest

from pallas_evo.config import Filters
from pallas_evo.judging import Observation
from pallas_evo.judging.filters import FILTERS, analyse_source

SEEDS = 3
SHAPE = (64, 128)
HONEST_SOURCE = "import jax\n\ndef kernel(x):\n    return x\n"
STATEFUL_SOURCE = "LAST = None\n\ndef kernel(x):\n    global LAST\n    LAST = x\n    return x\n"


Candidate = Callable[[np.ndarray, np.ndarray, np.ndarray, np.ndarray], np.ndarray]
Make = Callable[[np.random.Generator], np.ndarray]


class Drawn:
    """x and b of `x + 0.01 b` on three seeds, and with each input drawn again."""

    def __init__(self, seed: int) -> None:
        rng = np.random.default_rng(seed)

        def draw() -> np.ndarray:
            return rng.standard_normal(SHAPE)

        self.seeds = [(draw(), draw()) for _ in range(SEEDS)]
        x, b = self.seeds[0]
        self.impacts = [(draw(), b), (x, draw())]

    def observe(self, candidate: Candidate) -> list[Observation]:
        """`candidate` gives the output; its last argument is each element's largest magnitude over all runs."""
        found = []
        cases = [("seed", None, pair) for pair in self.seeds]
        cases += [("impact", index, pair) for index, pair in enumerate(self.impacts)]
        extreme = np.max([np.abs(x + 0.01 * b) for _, _, (x, b) in cases], axis=0)
        for role, changed, (x, b) in cases:
            reference = x + 0.01 * b
            output = np.asarray(candidate(x, b, reference, extreme), np.float32)
            yard = reference.astype(np.float32)
            found.append(
                Observation(
                    label="small", role=role, changed=changed, output=output, reference=reference, yardstick=yard
                )
            )
        return found


def honest(x: np.ndarray, b: np.ndarray, reference: np.ndarray, extreme: np.ndarray) -> np.ndarray:
    return reference


def outlier(x: np.ndarray, b: np.ndarray, reference: np.ndarray, extreme: np.ndarray) -> np.ndarray:
    """The largest element is half a standard deviation too large; 8,191 others are right."""
    output = reference.copy()
    output[np.unravel_index(np.argmax(output), output.shape)] += 0.5
    return output


def rows_reversed(x: np.ndarray, b: np.ndarray, reference: np.ndarray, extreme: np.ndarray) -> np.ndarray:
    """Every value is there, in another place."""
    return reference[::-1]


def patterned(x: np.ndarray, b: np.ndarray, reference: np.ndarray, extreme: np.ndarray) -> np.ndarray:
    """A fixed pattern on top, that stays within the range and is the same for every input."""
    pattern = np.where(np.arange(reference.size).reshape(reference.shape) % 2 == 0, 0.7, -0.7)
    return reference + np.where(extreme < 2.0, pattern, 0.0)


def second_input_ignored(x: np.ndarray, b: np.ndarray, reference: np.ndarray, extreme: np.ndarray) -> np.ndarray:
    """One percent of the output comes from b, and is left out."""
    return x


ALONE = {
    "output_range": (outlier, HONEST_SOURCE),
    "output_std": (rows_reversed, HONEST_SOURCE),
    "axes_variation": (patterned, HONEST_SOURCE),
    "input_impact": (second_input_ignored, HONEST_SOURCE),
    "source_analysis": (honest, STATEFUL_SOURCE),
}


def refusing(observations: list[Observation], source: str) -> set[str]:
    """The filters that refuse."""
    results = {name: check(observations, Filters()) for name, check in FILTERS.items()}
    results["source_analysis"] = analyse_source(ast.parse(source))[0]
    for result in results.values():
        assert result.message
        assert result.threshold is not None
    return {name for name, result in results.items() if not result.passed}


def test_every_filter_is_tried() -> None:
    assert set(ALONE) == {*FILTERS, "source_analysis"}


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("name", ALONE)
def test_one_output_is_refused_by_this_filter_alone(name: str, seed: int) -> None:
    candidate, source = ALONE[name]
    assert refusing(Drawn(seed).observe(candidate), source) == {name}


@pytest.mark.parametrize("seed", range(3))
def test_the_honest_output_is_refused_by_none(seed: int) -> None:
    assert refusing(Drawn(seed).observe(honest), HONEST_SOURCE) == set()


def observe_one(make: Make) -> list[Observation]:
    """Three seeds and one more drawing of a function of one input; its honest float32 output."""
    found = []
    for seed in range(SEEDS + 1):
        reference = make(np.random.default_rng(seed))
        output = reference.astype(np.float32)
        role, changed = ("seed", None) if seed < SEEDS else ("impact", 0)
        found.append(
            Observation(label="small", role=role, changed=changed, output=output, reference=reference, yardstick=output)
        )
    return found


def sparse(rng: np.random.Generator) -> np.ndarray:
    """one_hot over 1024 classes: 99.9 % zeros."""
    return (rng.integers(0, 1024, 128)[:, None] == np.arange(1024)).astype(np.float64)


def small(rng: np.random.Generator) -> np.ndarray:
    """softmax over 4096 columns of nearly equal logits: every value is near 1/4096."""
    weights = np.exp(0.01 * rng.standard_normal((16, 4096)))
    return weights / weights.sum(axis=1, keepdims=True)


def uniform(rng: np.random.Generator) -> np.ndarray:
    """softmax of equal logits: every value is 1/4096, whatever the seed."""
    return np.full((16, 4096), 1 / 4096)


def single(rng: np.random.Generator) -> np.ndarray:
    """One element."""
    return rng.standard_normal((1, 1))


@pytest.mark.parametrize("make", [sparse, small, uniform, single])
@pytest.mark.parametrize("name", FILTERS)
def test_honest_sparse_and_small_outputs_are_accepted(name: str, make: Make) -> None:
    result = FILTERS[name](observe_one(make), Filters())
    assert result.passed, result.message


def zeros_like(output: np.ndarray) -> np.ndarray:
    return np.zeros_like(output)


@pytest.mark.parametrize("make", [sparse, small])
def test_zeros_in_place_of_sparse_and_small_outputs_are_refused(make: Make) -> None:
    observations = [
        Observation(
            label=seen.label,
            role=seen.role,
            changed=seen.changed,
            output=zeros_like(seen.output),
            reference=seen.reference,
            yardstick=seen.yardstick,
        )
        for seen in observe_one(make)
    ]
    assert {name for name, check in FILTERS.items() if not check(observations, Filters()).passed} == set(FILTERS)
