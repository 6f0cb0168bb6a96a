"""Who judges for a bench: a pool of judges, each candidate in processes of its own."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any, Protocol

from pallas_evo.config import Config
from pallas_evo.errors import UsageError, WorkerFailed
from pallas_evo.pool import Pool
from pallas_evo.types import Target


class Judges(Protocol):
    """What a bench asks for verdicts."""

    def submit(self, source: str, task_id: str) -> Future[dict[str, Any]]:
        """The verdict to come, an `Evaluation`'s fields by name; a failure of ours is the future's exception."""
        ...

    def wait_ready(self) -> None:
        """Until every judge has its processes coming up."""
        ...


@contextmanager
def open_judges(config: Config, target: Target, count: int) -> Iterator[Judges]:
    """`count` judges at once; all their processes end with the block."""
    with Pool(config, target, judges=count) as pool:
        yield PoolJudges(pool)


class PoolJudges:
    """A pool's records as verdicts."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool

    def submit(self, source: str, task_id: str) -> Future[dict[str, Any]]:
        verdict: Future[dict[str, Any]] = Future()

        def hand_on(record: Future[dict[str, Any]]) -> None:
            try:
                verdict.set_result(evaluation_of(record.result()))
            except BaseException as error:
                verdict.set_exception(error)

        self._pool.submit(source, task_id).add_done_callback(hand_on)
        return verdict

    def wait_ready(self) -> None:
        self._pool.wait_ready(every=True)


def evaluation_of(record: dict[str, Any]) -> dict[str, Any]:
    """The verdict in a pool's record.

    Raises:
        UsageError: the request was wrong.
        WorkerFailed: the record says that we failed.
    """
    if record["kind"] == "usage":
        raise UsageError(record["message"])
    if record["kind"] != "judged":
        raise WorkerFailed(record["message"])
    evaluation: dict[str, Any] = record["evaluation"]
    return evaluation
