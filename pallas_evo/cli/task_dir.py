"""`pallas_evo task-dir`: a folder for ShinkaEvolve's own command line."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from pallas_evo.cli.evaluate import Target


def task_dir(
    task: Annotated[str, typer.Argument(metavar="ID", help="The task, for example L1/softmax.")],
    folder: Annotated[str, typer.Argument(metavar="DIR", help="Made where it is missing; must hold no such files.")],
    target: Annotated[Target, typer.Option(help="Where candidates are run.")] = Target.auto,
) -> None:
    """Write initial.py, evaluate.py and shinka.yaml, which `shinka_run` runs as they are.

    Example: pallas_evo task-dir L1/softmax my_task
    """
    from pallas_evo.evolution.taskdir import write_task_dir
    from pallas_evo.tasks import get_task

    made = write_task_dir(get_task(task), Path(folder), target=target.value)
    sys.stdout.write(
        f"shinka_run --task-dir {made} --results_dir {made / 'results'} --num_generations 40 "
        "--config-fname shinka.yaml\n"
    )
