"""`pallas_evo`: the commands, and how a failure becomes a sentence and an exit code.

0 accepted or done; 1 a candidate is refused; 2 the caller's mistake; 3 our own failure; 130 interrupted.
"""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Sequence
from typing import Annotated

import typer

from pallas_evo import __version__
from pallas_evo.cli import archive, bench, doctor, evaluate, evolve, export, inspect, serve, task_dir, tasks
from pallas_evo.errors import PallasEvoError

REFUSED_BY_THE_MACHINE = {
    errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO, errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EAGAIN,
}  # fmt: skip
"""Errors of the machine that we are on: our failure, and no bug."""

app = typer.Typer(
    name="pallas_evo",
    help="Seed kernels and an honest judge for evolving JAX Pallas GPU kernels.",
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    no_args_is_help=True,
)
app.command("tasks")(tasks.tasks)
app.command("evaluate")(evaluate.evaluate)
app.command("evolve")(evolve.evolve)
app.command("task-dir")(task_dir.task_dir)
app.command("inspect")(inspect.inspect)
app.command("export")(export.export)
app.command("bench")(bench.bench)
app.command("serve")(serve.serve)
app.command("doctor")(doctor.doctor)
app.add_typer(archive.app, name="archive")


def _version(wanted: bool) -> None:
    if wanted:
        sys.stdout.write(f"pallas_evo {__version__}\n")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and end.")
    ] = False,
) -> None:
    """Seed kernels and an honest judge for evolving JAX Pallas GPU kernels."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; returns its exit code. A traceback is shown only with PALLAS_EVO_DEBUG=1."""
    for stream in (sys.stdout, sys.stderr):
        # A terminal that cannot show a character shows another: a verdict is never lost for a tick or a file's name.
        if (reconfigure := getattr(stream, "reconfigure", None)) is not None:
            reconfigure(errors="replace")
    try:
        app(args=list(arguments) if arguments is not None else None, prog_name="pallas_evo")
    except SystemExit as ended:
        if isinstance(ended.code, str):
            sys.stderr.write(f"{ended.code}\n")
            return 1
        return ended.code or 0
    except KeyboardInterrupt:
        sys.stderr.write("Interrupted.\n")
        return 130
    except BrokenPipeError:
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115  (or the interpreter complains while it ends)
        return 0
    except PallasEvoError as error:
        sys.stderr.write(f"{error}\n")
        return error.exit_code
    except Exception as error:
        if isinstance(error, OSError) and error.errno in REFUSED_BY_THE_MACHINE:
            place = f"{error.filename}: " if error.filename else ""
            sys.stderr.write(
                f"{place}{error.strerror}. There is no score for what was at work; what was judged before is in the "
                "archive. Mend that and run the command again.\n"
            )
            return 3
        if os.environ.get("PALLAS_EVO_DEBUG") == "1":
            raise
        sys.stderr.write(
            f"Internal error: {type(error).__name__}: {error}. There is no score. Please report it, with what "
            "PALLAS_EVO_DEBUG=1 shows.\n"
        )
        return 3
    return 0


if __name__ == "__main__":
    sys.exit(main())
