"""Who judges for a bench: a pool of judges, each candidate in processes of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any, Protocol

from pallas_evo.config import Config
from pallas_evo.types import Target


class Judges(Protocol):
    """What a bench asks for verdicts; `Pool` is one."""

    def submit(self, source: str, task_id: str) -> Future[dict[str, Any]]:
        """The verdict to come, as `evaluate --json` prints it; our own failure is the future's exception."""
        ...


@contextmanager
def open_judges(config: Config, target: Target, count: int) -> Iterator[Judges]:
    """`count` judges at once; all their processes end with the block."""
    try:
        from pallas_evo.pool import Pool  # type: ignore[import-not-found,import-untyped,unused-ignore]
    except ImportError:
        with _Threads(config, target, count) as threads:
            yield threads
        return
    with Pool(config, target, judges=count) as pool:
        yield pool


class _Threads:
    """Judges in threads of this process, each with an evaluator of its own."""

    def __init__(self, config: Config, target: Target, count: int) -> None:
        import threading
        from concurrent.futures import ThreadPoolExecutor

        from pallas_evo.evaluation import Evaluator

        self._local = threading.local()
        self._evaluators: list[Evaluator] = []
        self._make: Callable[[], Evaluator] = lambda: Evaluator(config, target=target)
        self._pool = ThreadPoolExecutor(count, thread_name_prefix="judge")

    def submit(self, source: str, task_id: str) -> Future[dict[str, Any]]:
        future: Future[dict[str, Any]] = self._pool.submit(self._judge, source, task_id)
        return future

    def _judge(self, source: str, task_id: str) -> dict[str, Any]:
        from pallas_evo.cli.rendering import evaluation_to_json
        from pallas_evo.tasks import get_task

        if not hasattr(self._local, "evaluator"):
            self._local.evaluator = self._make()
            self._evaluators.append(self._local.evaluator)
        return evaluation_to_json(self._local.evaluator.evaluate(source, get_task(task_id), more=True))

    def __enter__(self) -> _Threads:
        return self

    def __exit__(self, *_: object) -> None:
        self._pool.shutdown(cancel_futures=True)
        for evaluator in self._evaluators:
            evaluator.close()
