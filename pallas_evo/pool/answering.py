"""A request made into a record, in a judge's process: the same for one judge and for a pool of them.

A request is a dictionary: `source`, `task`; and, for the configuration, `config_text` (YAML, or None), `config_name`
(the file that it was read from, for messages) and `overrides` (`key=value`). A record is one of

    {kind: judged, correct, error, metrics, evaluation}   `metrics` in ShinkaEvolve's form, `evaluation` whole
    {kind: usage, message}                                the caller's mistake
    {kind: failure, message}                              ours: there is no score
"""

from __future__ import annotations

import dataclasses
import os
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal, Protocol

from pallas_evo.config import Config, load_config
from pallas_evo.errors import PallasEvoError, UsageError
from pallas_evo.evolution.metrics import shinka_metrics
from pallas_evo.tasks import get_task
from pallas_evo.types import Evaluation, Task

Wanted = Literal["auto", "cpu", "cuda"]
KNOWN_CONFIGS = 64


class Judge(Protocol):
    """What judges: `pallas_evo.evaluation.Evaluator`, or a stand-in."""

    def prepare(self) -> None: ...
    def evaluate(self, source: str, task: Task, *, more: bool = False) -> Evaluation: ...
    def close(self) -> None: ...


Factory = Callable[[Config, Wanted], Judge]


def real(config: Config, target: Wanted) -> Judge:
    """An `Evaluator`."""
    os.environ.setdefault("JAX_PLATFORMS", "cpu")  # here JAX computes references; the GPU is for processes of their own
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    from pallas_evo.evaluation import Evaluator

    return Evaluator(config, target=target, nursed=True)


class Answerer:
    """Answers requests one after another; a request with another configuration makes a new judge.

    Args:
        target: for all of them.
        factory: makes the judge.
    """

    def __init__(self, target: Wanted, factory: Factory = real) -> None:
        self.target, self._factory = target, factory
        self._judge: Judge | None = None
        self._config: Config | None = None
        self._known: dict[tuple[Any, ...], Config] = {}

    def prepare(self, request: Mapping[str, Any]) -> None:
        """Have a judge for the request's configuration, with its processes coming up.

        Raises:
            PallasEvoError: the configuration does not fit, or nothing here can judge so.
        """
        self._for(self._resolved(request)).prepare()

    def answer(self, request: Mapping[str, Any], *, more: bool = False) -> dict[str, Any]:
        """The request's record; `more`: another follows, so processes for it are started meanwhile."""
        try:
            task, config = get_task(request["task"]), self._resolved(request)
            evaluation = self._for(config).evaluate(request["source"], task, more=more)
            return judged(task, evaluation)
        except UsageError as error:
            return {"kind": "usage", "message": str(error)}
        except PallasEvoError as error:
            return {"kind": "failure", "message": f"{type(error).__name__}: {error}"}
        except Exception as error:  # a fault of our own code, which no candidate shall be blamed for
            traceback.print_exc()
            return {"kind": "failure", "message": f"{type(error).__name__}: {error}"}

    def rest(self) -> None:
        """Make ready for the next request, whatever became of the last; a failure will show when that one comes."""
        if self._judge is not None:
            try:
                self._judge.prepare()
            except (PallasEvoError, OSError):
                traceback.print_exc()

    def close(self) -> None:
        """End the judge's processes."""
        judge, self._judge, self._config = self._judge, None, None
        if judge is not None:
            judge.close()

    def _for(self, config: Config) -> Judge:
        if self._judge is None or config != self._config:
            self.close()
            self._judge, self._config = self._factory(config, self.target), config
        return self._judge

    def _resolved(self, request: Mapping[str, Any]) -> Config:
        text, name, overrides = request.get("config_text"), request.get("config_name"), request.get("overrides") or ()
        key = (text, name, *overrides)
        if key not in self._known:
            if len(self._known) >= KNOWN_CONFIGS:
                self._known.clear()
            self._known[key] = load_config(Path(name or "configuration"), overrides, text=text or "")
        return self._known[key]


def judged(task: Task, evaluation: Evaluation) -> dict[str, Any]:
    """The record of a verdict, in plain containers."""
    return {
        "kind": "judged",
        "correct": bool(evaluation.correct),
        "error": None if evaluation.correct else f"{evaluation.reason}: {evaluation.message}",
        "metrics": shinka_metrics(task, evaluation),
        "evaluation": dataclasses.asdict(evaluation),
    }


def plain(value: Any) -> Any:
    """`json.dumps`'s default for what evaluations hold: NumPy scalars and mappings."""
    if hasattr(value, "item"):
        return value.item()
    if hasattr(value, "items"):
        return dict(value)
    raise TypeError(f"expected what JSON can hold, came a {type(value).__name__}")
