"""The way of a candidate, from source to verdict: the only package that knows all four roles.

    contract, source_analysis  ->  A tracer  ->  B validator  ->  compile  ->  C runner  ->  D judge  ->  time

A candidate's failure is a value in the `Evaluation`. What is raised from here is our own failure, and no score.

evaluate     judge one candidate
Evaluator    judge many, one after another, with the next one's processes started ahead
environment  the versions and the machine that a verdict depends on

copy_bandwidth  what this GPU's memory gives; `Evaluator.self_ratio` is a program against itself
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from types import TracebackType
from typing import Literal

from pallas_evo import tasks
from pallas_evo.config import Config
from pallas_evo.errors import DeviceUnavailable
from pallas_evo.evaluation.case import Case
from pallas_evo.evaluation.environment import environment
from pallas_evo.evaluation.measuring import Bandwidth, SelfRatio, copy_bandwidth, self_ratio
from pallas_evo.evaluation.processes import Nurseries, Processes
from pallas_evo.running import gpu_present
from pallas_evo.types import Evaluation, Target, Task

__all__ = ["Bandwidth", "Evaluator", "SelfRatio", "copy_bandwidth", "environment", "evaluate"]


def evaluate(
    source: str, task: Task | str, *, target: Literal["auto", "cpu", "cuda"] = "auto", config: Config | None = None
) -> Evaluation:
    """Judge one candidate; see `Evaluator.evaluate`."""
    with Evaluator(config, target=target) as evaluator:
        return evaluator.evaluate(source, tasks.get_task(task) if isinstance(task, str) else task)


class Evaluator:
    """Judges candidates one after another, and starts the processes for the next while it judges one.

    Args:
        config: limits, sizes, repeats and thresholds; the defaults where none is given.
        target: `cuda` runs and times on the GPU, `cpu` runs in the executor, `auto` takes the GPU where there is one.
        nursed: fork the processes of each candidate from ones that have JAX loaded; worth it for ten or more.

    Raises:
        JailUnavailable: nothing here can confine a candidate, and the configuration does not allow it unconfined.
        DeviceUnavailable: `cuda`, and there is no GPU.
    """

    def __init__(
        self,
        config: Config | None = None,
        *,
        target: Literal["auto", "cpu", "cuda"] = "auto",
        nursed: bool = False,
    ) -> None:
        self.config = config or Config()
        self.target = _resolve(target)
        self._nurseries = Nurseries(self.target) if nursed else None
        self._spares: Processes | None = None
        self._reaper = ThreadPoolExecutor(1, thread_name_prefix="reaper")

    def prepare(self) -> None:
        """Start the processes that the next candidate will need; does not wait for them."""
        if self._spares is not None and not self._spares.alive:
            self._spares.kill()
            self._spares = None
        if self._spares is None:
            self._spares = Processes(self.config, self.target, self._nurseries)

    def evaluate(self, source: str, task: Task, *, more: bool = False) -> Evaluation:
        """Judge one candidate through all gates.

        Args:
            source: the candidate's file.
            task: what it is a candidate for.
            more: another candidate follows, so start its processes while this one is judged, and do not wait until
                this one's, which are killed, have gone.

        Raises:
            JailUnavailable, DeviceUnavailable, WorkerFailed, UnknownOperation: ours; there is no score.
        """
        self.prepare()
        processes, self._spares = self._spares, None
        assert processes is not None
        try:
            return Case(self.config, self.target, processes, source, task).judge(
                when_traced=self.prepare if more else None
            )
        finally:
            if not more:
                processes.kill()
            elif self._spares is None and not processes.tracers.used:  # refused before anything of it ran
                self._spares = processes
            else:
                processes.stop()
                self._reaper.submit(processes.kill)  # not waited for: a CUDA process takes a while to go

    def self_ratio(self, source: str, task: Task) -> SelfRatio:
        """A program that is known to be right, timed against a second compilation of itself.

        Raises:
            DeviceUnavailable, WorkerFailed: there is no GPU, or the program is refused.
        """
        return self_ratio(source, task, self.config)

    def close(self) -> None:
        """End all processes."""
        if self._spares is not None:
            self._spares.kill()
            self._spares = None
        self._reaper.shutdown(wait=True)
        if self._nurseries is not None:
            self._nurseries.close()

    def __enter__(self) -> Evaluator:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.close()


def _resolve(target: Literal["auto", "cpu", "cuda"]) -> Target:
    if target == "auto":
        return "cuda" if gpu_present() else "cpu"
    if target == "cuda" and not gpu_present():
        raise DeviceUnavailable("No NVIDIA GPU was found here. Use --target cpu, which runs the same program.")
    return target
