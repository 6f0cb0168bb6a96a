"""A parametric mutator, a baseline for language models, and no more than that.

It changes what it finds written in a kernel: the constants at the top of the EVOLVE block, and a handful of structural
moves (`moves.py`). It invents no algorithm and understands no feedback beyond the score. Within a run it never proposes
what it has proposed or been shown before, and a small model of the scores chooses among its candidates.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from pallas_evo.evolution.blocks import identity, split_block
from pallas_evo.evolution.knobs import has_dot, knobs_of, values_of, with_knobs
from pallas_evo.evolution.model import ScoreModel
from pallas_evo.evolution.moves import moves_of

POOL = 48  # candidates from which one is chosen
GREEDY = 0.9  # share of choices that follow the model


@dataclass(frozen=True, kw_only=True)
class Mutant:
    """One proposal: the whole file, its block, and what was done to get it."""

    source: str
    block: str
    name: str
    description: str


class OfflineMutator:
    """Proposes mutants of a program, each once.

    Args:
        seed: of its random choices.
        use_model: whether scores and the model's prior guide the choice; without, it is random search.

    May be used from several threads.
    """

    def __init__(self, *, seed: int = 0, use_model: bool = True) -> None:
        self._rng = np.random.default_rng(seed)
        self._use_model = use_model
        self._model = ScoreModel()
        self._known: set[str] = set()
        self._lock = threading.Lock()

    def exclude(self, sources: Iterable[str]) -> None:
        """Never propose these."""
        with self._lock:
            for source in sources:
                parts = split_block(source)
                if parts is not None:
                    self._known.add(identity(parts[1]))

    def learn(self, source: str, score: float) -> None:
        """Note what a program scored."""
        parts = split_block(source)
        if parts is not None:
            with self._lock:
                self._model.learn(parts[1], score)
                self._known.add(identity(parts[1]))

    def mutate(self, source: str, *, others: Sequence[str] = ()) -> Mutant | None:
        """A new mutant of `source`, a recombination with one of `others` where there are any.

        None where the file has no EVOLVE block, or nothing new can be made of it.
        """
        parts = split_block(source)
        if parts is None:
            return None
        dot_task = "TF32 operands allowed" in parts[0]
        mates = [found[1] for other in others if (found := split_block(other)) is not None]
        with self._lock:
            self._known.add(identity(parts[1]))
            pool = self._pool(parts[1], mates, dot_task)
            if not pool:
                return None
            block = self._choose(list(pool))
            self._known.add(identity(block))
        what = pool[block]
        return Mutant(
            source=parts[0] + block + parts[2],
            block=block,
            name="_".join(what)[:60].lower(),
            description=f"Parametric mutation: {_said(parts[1], block, what)}.",
        )

    def repair(self, source: str) -> Mutant | None:
        """For a program that is wrong: a mutant of the best block that is known, else of the program itself."""
        parts = split_block(source)
        with self._lock:
            best = self._model.best
        return self.mutate(parts[0] + best + parts[2] if parts is not None and best is not None else source)

    # ---- the pool ------------------------------------------------------------------------------------------------

    def _pool(self, block: str, mates: list[str], dot_task: bool) -> dict[str, tuple[str, ...]]:
        """New blocks and how each was made. Tries ever larger steps until there are enough."""
        pool: dict[str, tuple[str, ...]] = {}
        seen: set[str] = set()

        def offer(made: str, what: tuple[str, ...]) -> None:
            key = identity(made)
            if key not in self._known and key not in seen:
                seen.add(key)
                pool[made] = what

        for mate in mates:
            for _ in range(POOL // 4):
                offer(*self._crossed(block, mate))
        if pool:
            return pool
        structural = list(moves_of(block, dot_task=dot_task))
        for attempt in range(8 * POOL):
            steps = 1 + attempt // POOL + (self._rng.integers(3) if attempt % 2 else 0)
            made = block
            what: tuple[str, ...] = ()
            if structural and self._rng.random() < 0.45:
                names = sorted({name for name, _ in structural})
                chosen = names[self._rng.integers(len(names))]  # moves alike, however many forms each has
                forms = [form for name, form in structural if name == chosen]
                made, what = forms[self._rng.integers(len(forms))], (chosen,)
                steps = steps - 1 if steps > 1 or self._rng.random() < 0.7 else 1
            for _ in range(steps if self._rng.random() < 0.7 or not steps else steps + 1):
                made, changed = self._nudged(made)
                what = (*what, *changed)
            if what:
                offer(made, what)
            if len(pool) >= POOL:
                break
        return pool

    def _nudged(self, block: str) -> tuple[str, tuple[str, ...]]:
        """One constant changed, more often to a neighbouring value than to a far one."""
        knobs, dot = knobs_of(block), has_dot(block)
        if not knobs:
            return block, ()
        name = sorted(knobs)[self._rng.integers(len(knobs))]
        values = values_of(name, knobs[name], dot)
        distance = np.abs(np.log2(np.array(values, float)) - np.log2(max(knobs[name], 1)))
        weights = 0.5**distance
        value = values[self._rng.choice(len(values), p=weights / weights.sum())]
        return with_knobs(block, {name: value}), (f"{name}_{value}",)

    def _crossed(self, block: str, mate: str) -> tuple[str, tuple[str, ...]]:
        """The structure of one parent with some constants of the other; sometimes nudged, for equal parents."""
        frame, giver = (block, mate) if self._rng.random() < 0.5 else (mate, block)
        given = knobs_of(giver)
        shared = {name: given[name] for name in sorted(knobs_of(frame)) if name in given}
        chosen = {name: value for name, value in shared.items() if self._rng.random() < 0.5}
        made, what = with_knobs(frame, chosen), ("cross", *chosen)
        if self._rng.random() < 0.5:
            made, changed = self._nudged(made)
            what = (*what, *changed)
        return made, what

    def _choose(self, blocks: list[str]) -> str:
        follow = self._use_model and self._rng.random() < GREEDY
        if not follow:
            return blocks[self._rng.integers(len(blocks))]
        return blocks[int(np.argmax(self._model.draw(blocks, self._rng)))]


def _said(old: str, new: str, what: tuple[str, ...]) -> str:
    before, after = knobs_of(old), knobs_of(new)
    changed = [
        f"{name} {before.get(name, 'new')} -> {value}" for name, value in after.items() if before.get(name) != value
    ]
    moves = [part for part in what if part.islower()]
    return ", ".join([*moves, *changed]) or "layout"
