"""The initial population: the seed, variants of it, and the best programs of earlier runs whose scores compare."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

from pallas_evo.archive import Archive, identity_of
from pallas_evo.errors import PallasEvoError
from pallas_evo.evolution.archiving import _evaluation
from pallas_evo.evolution.callback import judge_file
from pallas_evo.evolution.mutator import OfflineMutator
from pallas_evo.evolution.rundir import EVALUATION, RunSettings
from pallas_evo.evolution.runner import was_judged
from pallas_evo.paths import seed_file
from pallas_evo.types import Task

VARIANT_ATTEMPTS = 4  # mutants tried for each variant that is asked for


def make_population(
    folder: Path, settings: RunSettings, task: Task, archive: Archive, say: Callable[[str], None]
) -> list[tuple[Path, str]]:
    """Judge the population and lay it out as generations 0, 1, ...; (generation folder, name) of each.

    The seed opens every island that has no program of its own, so that each has a correct one. Only programs that are
    correct here and now are taken.

    Raises:
        PallasEvoError: the seed itself is refused, or we failed.
    """
    made: list[tuple[Path, str]] = []

    def judge(source: str, name: str) -> bool:
        generation = folder / f"gen_{len(made)}"
        generation.mkdir(exist_ok=True)
        (generation / "main.py").write_text(source, encoding="utf-8")
        results = generation / "results"
        if not (was_judged(results) and _same(generation, results)):
            judge_file(
                generation / "main.py",
                results,
                task=task.id,
                target=settings.target,
                config=folder / EVALUATION,
                deadline_s=settings.deadline_s,
            )
        evaluation = _evaluation(results)
        if evaluation is None or not evaluation.correct:
            say(f"{name}: refused ({evaluation.reason if evaluation else 'no verdict'}), left out")
            shutil.rmtree(generation)
            return False
        say(f"{name}: {evaluation.combined_score:.4f}")
        made.append((generation, name))
        return True

    seed = seed_file(task.id).read_text(encoding="utf-8")
    if not judge(seed, "seed"):
        raise PallasEvoError(
            f"{task.id}: its seed is refused on this machine. Run: python -m pallas_evo.seed --only {task.id}"
        )
    mutator = OfflineMutator(seed=settings.seed)
    mutator.exclude([seed])
    wanted = settings.variants
    for _ in range(VARIANT_ATTEMPTS * settings.variants):
        mutant = mutator.mutate(seed) if wanted else None
        if mutant is None:
            break
        wanted -= judge(mutant.source, mutant.name)
    for record in _best(folder, settings, task, archive):
        judge(record, "best of an earlier run")
    while len(made) < settings.islands:
        generation = folder / f"gen_{len(made)}"
        shutil.copytree(made[0][0], generation, dirs_exist_ok=True)
        made.append((generation, "seed"))
    return made


def _same(generation: Path, results: Path) -> bool:
    from pallas_evo.archive import sha256_of_text

    evaluation = _evaluation(results)
    source = (generation / "main.py").read_text(encoding="utf-8")
    return evaluation is not None and evaluation.candidate_sha256 == sha256_of_text(source)


def _best(folder: Path, settings: RunSettings, task: Task, archive: Archive) -> list[str]:
    """Sources of the best programs with the identity that the seed's score has here, the seed left out."""
    seed = _evaluation(folder / "gen_0" / "results")
    if not settings.best or seed is None:
        return []
    found = archive.best(task.id, identity_of(seed), limit=settings.best + 1)
    chosen = [record for record in found if record.candidate_sha256 != seed.candidate_sha256][: settings.best]
    records = [archive.program(task.id, record.candidate_sha256) for record in chosen]
    return [record.source for record in records if record.source is not None]
