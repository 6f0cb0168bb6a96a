"""`pallas_evo evolve`: a real ShinkaEvolve run, with or without a language model."""

from __future__ import annotations

import dataclasses
import json
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from pallas_evo.cli.evaluate import Target
from pallas_evo.errors import UsageError
from pallas_evo.paths import CONFIGS, DEFAULT_ARCHIVE
from pallas_evo.tasks import get_task


def evolve(
    task: Annotated[str, typer.Argument(metavar="ID", help="The task, for example L2/pwm_scan.")],
    generations: Annotated[
        int | None, typer.Option(metavar="N", min=1, help="New programs, beside the initial population. Default 40.")
    ] = None,
    run_dir: Annotated[
        str | None, typer.Option(metavar="DIR", help="The run's folder; one that holds a run is resumed.")
    ] = None,
    mutator: Annotated[
        str | None, typer.Option(metavar="offline/MODEL", help="`offline`, or any model name of ShinkaEvolve.")
    ] = None,
    budget: Annotated[
        str | None, typer.Option(metavar="NAME/FILE", help="small, medium, large, or a YAML file of settings.")
    ] = None,
    target: Annotated[Target | None, typer.Option(help="Where candidates are run.")] = None,
    islands: Annotated[int | None, typer.Option(min=1, help="Islands. Default 2.")] = None,
    variants: Annotated[int | None, typer.Option(min=0, help="Mutants of the seed in the initial population.")] = None,
    best: Annotated[int | None, typer.Option(min=0, help="Best programs of earlier runs in it.")] = None,
    jobs: Annotated[int | None, typer.Option(min=1, help="Candidates judged at the same time. Default 1.")] = None,
    seed: Annotated[int | None, typer.Option(help="Of the offline mutator's choices.")] = None,
    random_search: Annotated[
        bool, typer.Option("--random-search", help="The offline mutator without its model, to compare with.")
    ] = False,
    config: Annotated[
        str | None, typer.Option(metavar="FILE", help="YAML for the evaluation, as for evaluate.")
    ] = None,
    overrides: Annotated[list[str] | None, typer.Option("--set", metavar="K=V", help="One value of it.")] = None,
    archive: Annotated[str, typer.Option(metavar="URL", help="Where the programs are kept.")] = str(DEFAULT_ARCHIVE),
    as_json: Annotated[bool, typer.Option("--json", help="The outcome as one JSON object.")] = False,
) -> None:
    """Evolve a task's kernel from its seed.

    A run that was killed goes on where it was: give its folder as --run-dir. Exit codes: 0 done, 2 a wrong option,
    task or folder, 3 our own failure, after which the run can be resumed.

    Example: pallas_evo evolve L2/pwm_scan --generations 40
    """
    chosen = get_task(task)
    from pallas_evo.config import load_config
    from pallas_evo.evolution.rundir import RunSettings, read_settings
    from pallas_evo.evolution.runs import evolve as run

    settings = RunSettings(task=chosen.id, generations=40)
    if budget is not None:
        file = CONFIGS / "shinka" / f"{budget}.yaml" if budget in ("small", "medium", "large") else Path(budget)
        read = read_settings(file, task=chosen.id)
        if read is None:
            raise UsageError(f"{budget}: expected small, medium, large or a YAML file, and there is none.")
        settings = read
    given: dict[str, Any] = {
        "generations": generations,
        "mutator": mutator,
        "target": target.value if target else None,
        "islands": islands,
        "variants": variants,
        "best": best,
        "evaluation_jobs": jobs,
        "proposal_jobs": jobs,
        "seed": seed,
        "random_search": random_search or None,
    }
    settings = dataclasses.replace(settings, **{name: value for name, value in given.items() if value is not None})
    outcome = run(
        settings,
        folder=Path(run_dir) if run_dir else None,
        archive=archive,
        config=load_config(Path(config) if config else None, overrides or ()),
    )
    if as_json:
        content = {
            **dataclasses.asdict(outcome),
            "folder": str(outcome.folder),
            "best_program": str(outcome.best_program),
        }
        sys.stdout.write(json.dumps(content, allow_nan=False) + "\n")
        return
    refused = sum(outcome.rejections.values())
    sys.stdout.write(
        f"{outcome.programs} programs, {refused} refused, {outcome.seconds:.0f} s. Best {outcome.best_score:.4f} "
        f"(generation {outcome.best_generation}), seed {outcome.seed_score:.4f}.\n{outcome.best_program}\n"
    )
