"""`pallas_evo archive`: copy and upgrade."""

from __future__ import annotations

import json
import sys
from typing import Annotated

import typer

app = typer.Typer(help="Move and upgrade archives.", no_args_is_help=True, rich_markup_mode=None)


@app.command("copy")
def copy(
    source: Annotated[
        str,
        typer.Argument(
            metavar="FROM", help="A path, or a SQLAlchemy URL like postgresql+psycopg://user@host/database."
        ),
    ],
    target: Annotated[str, typer.Argument(metavar="TO", help="Likewise; made where it is not there.")],
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object on stdout.")] = False,
) -> None:
    """Add to TO all that FROM holds and TO lacks. May be killed and run again.

    Example: pallas_evo archive copy runs/archive.sqlite postgresql+psycopg://me@db.example/kernels
    """
    from pallas_evo.archive import open_archive

    with open_archive(source, create=False, read_only=True) as one, open_archive(target) as other:
        report = one.copy_into(other)
    if as_json:
        sys.stdout.write(json.dumps({"added": dict(report.added), "total": report.total}) + "\n")
    else:
        sys.stdout.write(f"{report.total} rows added\n")


@app.command("upgrade")
def upgrade(
    archive: Annotated[str, typer.Argument(metavar="URL", help="A path, or a SQLAlchemy URL.")],
) -> None:
    """Bring an older archive to this version's schema.

    Example: pallas_evo archive upgrade runs/archive.sqlite
    """
    from pallas_evo.archive import upgrade as bring_up
    from pallas_evo.archive.location import locate

    bring_up(archive)
    sys.stdout.write(f"{locate(archive).name}: up to date\n")  # without its password
