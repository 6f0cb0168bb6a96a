"""A new best of a run is judged again before it is stored: a record that luck made would lead the search astray."""

from __future__ import annotations

import json
import logging
import os
import threading
from pathlib import Path

from pallas_evo.config import Config
from pallas_evo.errors import PallasEvoError
from pallas_evo.types import Evaluation, Task

log = logging.getLogger(__name__)


class Elites:
    """The best of one run, and what is done before another becomes it.

    Args:
        task: the run's.
        config: its evaluation's.
        target: where it is judged; nothing untimed is an elite.
        folder: the run's folder; the best of what lies judged there is the best so far.
    """

    def __init__(self, task: Task, config: Config, target: str, folder: Path) -> None:
        self.task, self.config, self.target = task, config, target
        self._lock = threading.Lock()
        scores = [_score(path) for path in folder.glob("gen_*/results")]
        self.best = max([score for score in scores if score is not None], default=None)

    def confirm(self, program: Path, results: Path) -> None:
        """Judge a program again where it is an elite, and replace its result files by the verdict that counts.

        A failure of ours leaves the first verdict as it is, and says so in the log.
        """
        with self._lock:
            try:
                first = _verdict(results)
                if first is None:
                    return
                os.environ.setdefault("JAX_PLATFORMS", "cpu")  # here JAX computes references only
                from pallas_evo.evaluation.elites import is_elite, rejudge

                if is_elite(first, self.best, self.config):
                    source = program.read_text(encoding="utf-8")
                    target = first.target if self.target == "auto" else self.target
                    first = rejudge(source, self.task, self.config, target=target, first=first)  # type: ignore[arg-type]
                    _replace(results, self.task, first)
            except (PallasEvoError, OSError, ValueError, TypeError, AttributeError) as error:
                log.warning("%s: a new best could not be judged again (%s); its first score stands.", results, error)
                return
            if first.correct and first.timer != "untimed":
                self.best = max(first.combined_score, self.best or 0.0)


def _verdict(results: Path) -> Evaluation | None:
    """The verdict that lies in a results folder, where the judge has spoken."""
    from pallas_evo.archive.encoding import build

    if not json.loads((results / "correct.json").read_text(encoding="utf-8")).get("judged"):
        return None
    found: Evaluation = build(Evaluation, json.loads((results / "evaluation.json").read_text(encoding="utf-8")))
    return found


def _replace(results: Path, task: Task, verdict: Evaluation) -> None:
    from pallas_evo.evolution.callback import _write
    from pallas_evo.pool.answering import judged, plain

    record = json.loads(json.dumps(judged(task, verdict), default=plain))
    _write(results / "evaluation.json", record["evaluation"], allow_nan=True)
    _write(results / "metrics.json", record["metrics"])
    _write(results / "correct.json", {"correct": record["correct"], "error": record["error"], "judged": True})


def _score(results: Path) -> float | None:
    try:
        if not json.loads((results / "correct.json").read_text(encoding="utf-8")).get("correct"):
            return None
        return float(json.loads((results / "metrics.json").read_text(encoding="utf-8"))["combined_score"])
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None
