"""Every untimed run of a candidate: draws its inputs, runs it in C, and holds its outputs against the references.

Drawing, references and comparing go on in a pool of threads beside the runs. On a GPU the executor looks at each size
too, for what a GPU cannot see: at small and the variant before the GPU runs them, at a timed size beside it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from concurrent.futures import TimeoutError as FutureTimeout
from dataclasses import dataclass

import numpy as np

from pallas_evo import tasks
from pallas_evo.config import Config
from pallas_evo.evaluation.processes import Processes
from pallas_evo.judging import Observation
from pallas_evo.judging.numerics import Comparison, compare
from pallas_evo.types import Artefact, Rejection, Task

Inputs = tuple[np.ndarray, ...]

_FATAL = ("endless", "run_memory", "device_fault", "compile_error", "compile_timeout", "shared_memory")
_LOOK_FIRST_S = 1.0  # the GPU waits so long for the executor's word on a small size, then goes on beside it


@dataclass(frozen=True, kw_only=True)
class _Trial:
    """One run that is planned: `changed` is the input that was drawn again."""

    label: str
    role: str
    changed: int | None
    inputs: Future[Inputs]
    expected: Future[tuple[np.ndarray, np.ndarray]]


@dataclass(frozen=True, kw_only=True)
class _Seen:
    """One output, and what is still being made of it."""

    trial: _Trial
    output: np.ndarray
    comparison: Future[Comparison]


class Trials:
    """The untimed runs of one candidate.

    Args:
        draw: a named generator whose seed is recorded; called after the artefacts are fixed.
        pool: threads for drawing, references and comparing.
    """

    def __init__(
        self,
        task: Task,
        config: Config,
        processes: Processes,
        artefacts: Mapping[str, Artefact],
        draw: Callable[[str], np.random.Generator],
        pool: Executor,
    ) -> None:
        self.task, self.config, self.artefacts = task, config, artefacts
        self.host, self.device = processes.host, processes.device
        self._draw, self._pool = draw, pool
        self._seen: list[_Seen] = []
        self._looked: list[tuple[int, float]] = []  # elements of inputs and output, and the executor's seconds
        self._waited: set[str] = set()  # sizes at which the executor took too long to wait for

    # ---- running ---------------------------------------------------------------------------------------------------

    def run(self, compiling: Future[bool]) -> Rejection | None:
        """Run all; the first refusal, in the order of the plan. Outputs are kept for `judged`.

        Args:
            compiling: comes true where offline compiling refuses the candidate: then it costs no GPU time.
        """
        plan = list(self._plan())
        try:
            return self._on_device(plan, compiling) if self.device is not None else self._on_host(plan)
        finally:
            used = [seen.trial for seen in self._seen]
            for trial in plan:
                if trial not in used:
                    trial.expected.cancel()
                    trial.inputs.cancel()

    def _on_host(self, plan: Sequence[_Trial]) -> Rejection | None:
        failure: Rejection | None = None
        for trial in plan:
            inputs = trial.inputs.result()
            result = self.host.run(self.artefacts[trial.label], inputs)
            if isinstance(result, Rejection):
                failure = failure or self._located(result, trial.label)
                if result.reason in _FATAL:
                    break
                continue
            if trial.role == "seed" and not self._seen:
                again = self.host.run(self.artefacts[trial.label], inputs)
                if isinstance(again, Rejection) or not np.array_equal(result[0], again[0], equal_nan=True):
                    failure = failure or Rejection(
                        reason="nondeterministic",
                        message="Two runs on the same inputs gave different outputs: programs depend on their order.",
                    )
            self._note(trial, result[0])
        return failure

    def _on_device(self, plan: Sequence[_Trial], compiling: Future[bool]) -> Rejection | None:
        assert self.device is not None
        failures: dict[str, Rejection] = {}
        with ThreadPoolExecutor(1, thread_name_prefix="executor") as thread:
            looks = {
                label: thread.submit(self._look, label, next(t for t in plan if t.label == label).inputs)
                for label in dict.fromkeys(trial.label for trial in plan)
            }
            try:
                made = self.device.compile(*self.artefacts.values(), baselines=self.config.judging.timed_sizes)
                refused = made if isinstance(made, Rejection) else None
                if refused is not None or compiling.result():
                    self.host.stop()
                    return self._located(refused, next(iter(self.artefacts))) if refused else None
                for trial in plan:
                    if trial.label in failures or self._refused_by(looks[trial.label], trial.label):
                        continue  # what the executor refuses never runs on the GPU
                    result = self.device.run(self.artefacts[trial.label], trial.inputs.result())
                    if not isinstance(result, Rejection):
                        self._note(trial, result[0])
                        continue
                    failures[trial.label] = result
                    if result.reason == "endless":
                        self.host.stop()  # it would not end there either
                    if result.reason in _FATAL:
                        break
                for label, look in looks.items():  # the executor's word is the more exact one
                    found = None if self._stopped(failures) else look.result()
                    if found is not None:
                        failures[label] = found
            except BaseException:
                self.host.stop()
                raise
        first = next((label for label in looks if label in failures), None)
        return self._located(failures[first], first) if first is not None else None

    @staticmethod
    def _stopped(failures: Mapping[str, Rejection]) -> bool:
        return any(failure.reason == "endless" for failure in failures.values())

    def _refused_by(self, look: Future[Rejection | None], label: str) -> bool:
        """Whether the executor has refused a small size; a timed size it looks at beside the GPU."""
        if label not in ("small", "variant"):
            return False
        try:
            return look.result(0.0 if label in self._waited else _LOOK_FIRST_S) is not None
        except FutureTimeout:
            self._waited.add(label)
            return False

    def _look(self, label: str, inputs: Future[Inputs]) -> Rejection | None:
        """What the executor sees and a GPU cannot; at a timed size only where that takes little time."""
        small = label in ("small", "variant")
        limit_s = None if small else self.config.run.executor_timed_size_s
        arrays = inputs.result()
        size = sum(array.size for array in arrays) + int(np.prod(self.artefacts[label].workload.output.shape))
        if limit_s is not None and foreseen_s(self._looked, size) > limit_s:
            return None  # it would be stopped half way
        looked = self.host.run(self.artefacts[label], arrays, deadline_s=limit_s)
        if not isinstance(looked, Rejection):
            self._looked.append((size, looked[2]))
            return None
        if not small and looked.reason in ("endless", "run_memory"):  # too long for a second look: the GPU has said
            return None
        return looked

    def _note(self, trial: _Trial, output: np.ndarray) -> None:
        self._seen.append(
            _Seen(trial=trial, output=output, comparison=self._pool.submit(self._compare, output, trial.expected))
        )

    # ---- judging ---------------------------------------------------------------------------------------------------

    def judged(self, *labels: str) -> Iterator[tuple[Observation, Comparison]]:
        """Every output of these sizes (of all without any) with its references and how it compares, as they come."""
        for seen in self._seen:
            if labels and seen.trial.label not in labels:
                continue
            reference, yardstick = seen.trial.expected.result()
            yield (
                Observation(
                    label=seen.trial.label,
                    role=seen.trial.role,
                    changed=seen.trial.changed,
                    output=seen.output,
                    reference=reference,
                    yardstick=yardstick,
                ),
                seen.comparison.result(),
            )

    def expect(self, inputs: Sequence[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
        """(reference, yardstick) for an input set."""
        return tasks.reference64(self.task, inputs), tasks.yardstick(self.task, inputs)

    def _compare(self, output: np.ndarray, expected: Future[tuple[np.ndarray, np.ndarray]]) -> Comparison:
        reference, yardstick = expected.result()  # submitted before this, so it is running at least
        return compare(output, reference, yardstick, self.task.precision, self.config.judging.numerics)

    # ---- the plan --------------------------------------------------------------------------------------------------

    def _plan(self) -> Iterator[_Trial]:
        """Every run, its inputs being drawn. Seeds are drawn here, after the artefacts are fixed."""
        judging = self.config.judging
        base: Future[Inputs] | None = None
        for index in range(judging.small_seeds):
            trial = self._trial("small", "seed", f"small-{index}")
            base = base or trial.inputs
            yield trial
        if "input_impact" not in judging.disabled_gates and base is not None:
            first, other = base.result(), self._drawn("small", "impact").result()
            for index in range(len(self.task.inputs)):
                mixed: Future[Inputs] = Future()
                mixed.set_result((*first[:index], other[index], *first[index + 1 :]))
                yield self._with("small", "impact", mixed, changed=index)
        for index in range(judging.variant_seeds):
            yield self._trial("variant", "seed", f"variant-{index}")
        if self.task.stress is not None:
            yield self._with("small", "stress", self._drawn("small", "stress", stress=True))
        if self.device is not None:
            for index in range(judging.medium_seeds):
                yield self._trial("medium", "seed", f"medium-{index}")

    def _trial(self, label: str, role: str, name: str) -> _Trial:
        return self._with(label, role, self._drawn(label, name))

    def _with(self, label: str, role: str, inputs: Future[Inputs], *, changed: int | None = None) -> _Trial:
        expected = self._pool.submit(lambda: self.expect(inputs.result()))
        return _Trial(label=label, role=role, changed=changed, inputs=inputs, expected=expected)

    def _drawn(self, label: str, name: str, *, stress: bool = False) -> Future[Inputs]:
        dims, rng = self.artefacts[label].workload.dims, self._draw(name)
        return self._pool.submit(tasks.draw_inputs, self.task, dims, rng, stress=stress)

    def _located(self, rejection: Rejection, label: str) -> Rejection:
        shapes = ", ".join(str(spec.shape) for spec in self.artefacts[label].workload.inputs)
        return Rejection(reason=rejection.reason, message=f"At {label}, inputs {shapes}: {rejection.message}")


def foreseen_s(looked: Sequence[tuple[int, float]], size: int) -> float:
    """What the executor will take at `size` elements, by what each element more has cost between its smallest and its
    largest run; 0.0 where those are too close to tell, so that the run itself must.

    Args:
        looked: (elements of inputs and output, seconds) of earlier runs.
    """
    if not looked:
        return 0.0
    (least, least_s), (most, most_s) = min(looked), max(looked)
    if most < 2 * least or most_s <= least_s:
        return 0.0
    return most_s + (size - most) * (most_s - least_s) / (most - least)
