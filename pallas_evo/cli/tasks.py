"""`pallas_evo tasks`."""

from __future__ import annotations

import json
import sys
from typing import Annotated, Any

import typer

from pallas_evo.cli.rendering import console
from pallas_evo.tasks import load_tasks, sizes_table
from pallas_evo.types import Task


def tasks(
    as_json: Annotated[bool, typer.Option("--json", help="One JSON array on stdout in place of the table.")] = False,
) -> None:
    """List the 45 tasks: shapes, formula, precision class.

    Example: pallas_evo tasks --json
    """
    if as_json:
        sys.stdout.write(json.dumps([task_to_json(task) for task in load_tasks()]) + "\n")
        return
    from rich.table import Table

    table = Table("task", "precision", "inputs at medium", "formula", box=None)
    for task in load_tasks():
        shapes = " ".join("x".join(map(str, shape)) for shape in sizes_table(task)["medium"])
        table.add_row(task.id, task.precision, shapes, task.formula)
    console(sys.stdout).print(table, markup=False)


def task_to_json(task: Task) -> dict[str, Any]:
    """A task as the command lists it; `sizes` holds the input shapes at each table size."""
    return {
        "id": task.id,
        "level": task.level,
        "category": task.category,
        "inputs": [
            {"name": spec.name, "dtype": spec.dtype, "law": spec.law, "shape": list(spec.shape)} for spec in task.inputs
        ],
        "sizes": sizes_table(task),
        "formula": task.formula,
        "precision": task.precision,
    }
