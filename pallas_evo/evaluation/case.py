"""One candidate before the judge: every gate in order, and the record of what each said."""

from __future__ import annotations

import dataclasses
import hashlib
import os
import secrets
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from pallas_evo import tasks
from pallas_evo.artefact.compiling import compile_offline_many
from pallas_evo.artefact.jailed import validate_jailed
from pallas_evo.config import Config
from pallas_evo.errors import ConfigError
from pallas_evo.evaluation import texts
from pallas_evo.evaluation.environment import environment
from pallas_evo.evaluation.processes import Processes
from pallas_evo.evaluation.stopwatch import SizeTime, Stopwatch
from pallas_evo.evaluation.trials import Trials
from pallas_evo.judging import check_contract, combined_score, describe
from pallas_evo.judging.filters import FILTERS, analyse_artefact, analyse_source
from pallas_evo.reasons import GATES, REASONS
from pallas_evo.running import driver_version
from pallas_evo.tracing import trace
from pallas_evo.types import (
    Artefact,
    Compiled,
    Evaluation,
    FilterResult,
    GateResult,
    Rejection,
    SizeResult,
    Target,
    Task,
    Workload,
)

_JUDGE_THREADS = max(1, min(4, (os.cpu_count() or 1) // 2))


class _Stop(Exception):
    """A gate refused the candidate and nothing after it can be applied."""


@dataclass
class _Record:
    """What is known of a candidate so far."""

    gates: dict[str, GateResult] = field(default_factory=dict)
    filters: dict[str, FilterResult] = field(default_factory=dict)
    sizes: dict[str, SizeResult] = field(default_factory=dict)
    compiled: dict[str, Compiled] = field(default_factory=dict)
    seeds: dict[str, int] = field(default_factory=dict)
    output_text: str = ""
    jail: str | None = None
    ran_on: str | None = None
    timer: str = "untimed"
    timing: dict[str, Any] = field(default_factory=dict)
    texts_size: str = ""
    jaxpr: str | None = None
    ptx: dict[tuple[str, str], tuple[str, ...]] = field(default_factory=dict)


class Case:
    """One candidate before the judge."""

    def __init__(self, config: Config, target: Target, processes: Processes, source: str, task: Task) -> None:
        self.config = config
        self.target = target
        self.processes = processes
        self.source = source
        self.task = task
        self.record = _Record(jail=processes.validator.level)
        self.artefacts: dict[str, Artefact] = {}
        self.held: tuple[str, Rejection] | None = None  # the first refusal, of gates that are switched off too
        self.failed_on_device: Rejection | None = None

    def judge(self, *, when_traced: Callable[[], None] | None = None) -> Evaluation:
        """Apply all gates; `when_traced` is called once the tracer is done."""
        start = time.perf_counter()
        try:
            self._read()
            self._trace_and_validate()
            if when_traced is not None:
                when_traced()
            with ThreadPoolExecutor(_JUDGE_THREADS, thread_name_prefix="judge") as pool:
                self._run_and_time(pool)
        except _Stop:
            pass
        return self._verdict(time.perf_counter() - start)

    def _run_and_time(self, pool: ThreadPoolExecutor) -> None:
        """The gates of C and D. Compiling, running, drawing, references and comparing go on side by side."""
        trials = Trials(self.task, self.config, self.processes, self.artefacts, self._draw, pool)
        with ThreadPoolExecutor(2, thread_name_prefix="compile") as beside:
            compiling = beside.submit(self._compile)
            ran = self._run(trials, compiling)
            stopped = compiling.result()
            timing: Future[tuple[dict[str, SizeTime | Rejection], float]] | None = None
            if self.target == "cuda" and ran and not stopped and self._sound_so_far(trials):
                timing = beside.submit(self._time, Stopwatch(self.task, self.config, self._draw, trials.expect, pool))
            if self.failed_on_device is not None:
                self._gate("compile", self.failed_on_device, self.record.gates["compile"].seconds)
            self._apply_filters(trials)
            if timing is not None:
                self._note_time(*timing.result())

    def _sound_so_far(self, trials: Trials) -> bool:
        """Whether the small sizes are right: what is wrong there is not worth the GPU's time."""
        return all(gate.passed for gate in self.record.gates.values()) and all(
            comparison.reason is None or "numerics" in self.config.judging.disabled_gates
            for _, comparison in trials.judged("small", "variant")
        )

    # ---- the gates ---------------------------------------------------------------------------------------------

    def _gate(self, name: str, rejection: Rejection | None, seconds: float, message: str = "") -> bool:
        """Note one gate's verdict; True where it refuses. A gate that the configuration switches off never does."""
        off = name in self.config.judging.disabled_gates
        if rejection is not None and self.held is None:
            self.held = (name, rejection)
        if rejection is not None and REASONS[rejection.reason][0] not in (name, "trace", "run"):
            raise AssertionError(f"reason {rejection.reason} given by the gate {name}")
        said = rejection.message if rejection else message
        self.record.gates[name] = GateResult(
            name=name,
            passed=rejection is None or off,
            reason=rejection.reason if rejection and not off else None,
            message=f"(switched off) {said}".strip() if off else said,
            seconds=round(seconds, 4),
        )
        return rejection is not None and not off

    def _read(self) -> None:
        with _clock() as seconds:
            tree = check_contract(self.source, self.task, self.config.artefact.source_bytes)
        refusal = tree if isinstance(tree, Rejection) else None
        if self._gate("contract", refusal, seconds()) or isinstance(tree, Rejection):
            if self.record.gates["contract"].passed:  # switched off: go on without a syntax tree
                return
            raise _Stop
        with _clock() as seconds:
            result, refusal = analyse_source(tree)
        self.record.filters["source_analysis"] = result
        if self._gate("source_analysis", refusal, seconds(), result.message):
            raise _Stop

    def _trace_and_validate(self) -> None:
        workloads = self._workloads()
        labels, keeps = [workload.label for workload in workloads], texts.wanted(self.config)
        self.record.texts_size = texts.text_size(labels, self.config.judging.timed_sizes)
        with _clock() as seconds:
            traced = trace(
                self.source,
                self.task,
                workloads,
                self.config.trace,
                allow_unjailed=self.config.allow_unjailed,
                tracers=self.processes.tracers,
                jaxpr_of=labels.index(self.record.texts_size) if keeps else None,
                jaxpr_bytes=self.config.texts.jaxpr_bytes,
            )
        if isinstance(traced, Rejection):
            self._gate(REASONS[traced.reason][0], traced, seconds())
            raise _Stop
        self.record.output_text = traced.output_text
        self.record.jail = traced.jail
        self.record.jaxpr = traced.jaxpr
        self._gate("trace", None, seconds())
        with _clock() as seconds:
            jobs = [*zip(traced.modules, workloads, strict=True), *zip(traced.second, workloads, strict=True)]
            verdicts = validate_jailed(
                jobs,
                self.config.artefact,
                allow_unjailed=self.config.allow_unjailed,
                worker=self.processes.validator,
            )
        for verdict in verdicts:
            if isinstance(verdict, Rejection):
                self._gate("validate", verdict, seconds())
                raise _Stop
        first, second = verdicts[: len(workloads)], verdicts[len(workloads) :]
        self.artefacts = {a.workload.label: a for a in first if isinstance(a, Artefact)}
        for one, other in zip(first, second, strict=True):
            if one.sha256 != other.sha256:  # type: ignore[union-attr]
                refusal = Rejection(
                    reason="nondeterministic_trace",
                    message=f"Two exports at {one.workload.label} gave different programs: "  # type: ignore[union-attr]
                    "tracing must depend on the input shapes and on nothing else.",
                )
                if self._gate("trace", refusal, self.record.gates["trace"].seconds):
                    raise _Stop
        self._gate("validate", None, seconds())
        result, refusal_or_none = analyse_artefact(list(self.artefacts.values()))
        if refusal_or_none is not None:
            self.record.filters["source_analysis"] = result
            if self._gate("source_analysis", refusal_or_none, 0.0):
                raise _Stop

    def _workloads(self) -> list[Workload]:
        """Every size that will be judged. Only the variant is drawn now; inputs are drawn after the hash is fixed."""
        task, judging = self.task, self.config.judging
        wanted: dict[str, Mapping[str, int]] = {"small": tasks.dims_of(task, "small")}
        if judging.variant_seeds:
            self.record.seeds["variant_shape"] = secrets.randbits(48)
            wanted["variant"] = tasks.draw_variant_dims(task, _rng(self.record.seeds["variant_shape"]))
        for size in [*(["medium"] if judging.medium_seeds else []), *judging.timed_sizes]:
            wanted.setdefault(size, tasks.dims_of(task, _size(size)))
        return [tasks.workload(task, dims, label) for label, dims in wanted.items()]

    def _compile(self) -> bool:
        """Triton and ptxas on the timed sizes; True where that refuses the candidate."""
        sms = list(self.config.compile.architectures)
        if self.processes.compiler is None or not sms:
            why = "not compiled: install the `ptx` extra" if self.config.compile.enabled else "not compiled: disabled"
            return self._gate("compile", None, 0.0, why)
        chosen = [self.artefacts[size] for size in self.config.judging.timed_sizes if size in self.artefacts]
        with _clock() as seconds:
            made = compile_offline_many(
                chosen,
                sms,
                self.config.compile.deadline_s,
                worker=self.processes.compiler,
                ptx=self.record.ptx if texts.wanted(self.config) else None,
            )
        for by_sm in made:
            for sm, compiled in by_sm.items():
                if isinstance(compiled, Compiled):
                    self.record.compiled[sm] = _larger(self.record.compiled.get(sm), compiled)
        refused = [entry for by_sm in made for entry in by_sm.values() if isinstance(entry, Rejection)]
        return self._gate("compile", refused[0] if refused else None, seconds())

    def _run(self, trials: Trials, compiling: Future[bool]) -> bool:
        """Run every size in C; False where a run failed, or compiling refused the candidate before the GPU ran it."""
        with _clock() as seconds:
            failure = trials.run(compiling)
        device = self.processes.device
        self.record.ran_on = device.device if device is not None else self.processes.host.device
        if failure is not None and REASONS[failure.reason][0] == "compile":
            self.failed_on_device = failure
            return False
        if device is not None and compiling.result():
            return False
        return not self._gate("run", failure, seconds())

    def _draw(self, name: str) -> np.random.Generator:
        self.record.seeds[name] = secrets.randbits(48)
        return _rng(self.record.seeds[name])

    def _apply_filters(self, trials: Trials) -> None:
        """All of D's gates, whatever the others said."""
        thresholds = self.config.judging.filters
        seen = [one for one, _ in trials.judged("small", "variant")]  # medium is numerics' alone
        if not any(observation.role == "seed" for observation in seen):
            return
        for name, check in FILTERS.items():
            with _clock() as seconds:
                result = check(seen, thresholds)
            self.record.filters[name] = result
            refusal = None if result.passed else Rejection(reason=name, message=result.message)
            self._gate(name, refusal, seconds(), result.message)
        with _clock() as seconds:
            refusal = self._compare(trials)
        self._gate("numerics", refusal, seconds())

    def _compare(self, trials: Trials) -> Rejection | None:
        """What every output's comparison with its reference says; keep each size's worst."""
        first: Rejection | None = None
        for seen, found in trials.judged():
            if found.reason is not None and first is None:
                what = {"stress": " (stress inputs)", "impact": f" (input {seen.changed} drawn again)"}
                first = Rejection(
                    reason=found.reason, message=f"At {seen.label}{what.get(seen.role, '')}: {found.message}"
                )
            if seen.role == "impact":
                continue
            workload = self.artefacts[seen.label].workload
            old = self.record.sizes.get(seen.label)
            new = SizeResult(
                shape=tuple(spec.shape for spec in workload.inputs),
                correct=found.reason is None,
                normwise_error=_finite(found.normwise_error),
                bound=found.bound,
            )
            self.record.sizes[seen.label] = new if old is None else _worse(old, new)
        return first

    # ---- time ----------------------------------------------------------------------------------------------------

    def _time(self, stopwatch: Stopwatch) -> tuple[dict[str, SizeTime | Rejection], float]:
        """Time every timed size against XLA on the GPU; and the seconds that it took."""
        device = self.processes.device
        assert device is not None
        with _clock() as seconds:
            taken = {size: stopwatch.time(device, self.artefacts[size]) for size in self.config.judging.timed_sizes}
        return taken, seconds()

    def _note_time(self, taken: Mapping[str, SizeTime | Rejection], seconds: float) -> None:
        """Keep the times of a program that every other gate lets through; any other has none."""
        if not all(gate.passed for gate in self.record.gates.values()):
            return
        refusal: Rejection | None = None
        for size, result in taken.items():
            if isinstance(result, Rejection):
                refusal = refusal or result
                continue
            workload, old = self.artefacts[size].workload, self.record.sizes.get(size)
            self.record.sizes[size] = dataclasses.replace(
                old or SizeResult(shape=tuple(spec.shape for spec in workload.inputs), correct=True),
                median_us=result.median_us,
                xla_us=result.xla_us,
                floor_us=result.floor_us,
                roofline_percent=100 * result.floor_us / result.median_us if result.floor_us is not None else None,
                samples_us=result.samples_us,
            )
            self.record.timer = result.timer
            self.record.timing[size] = result.evidence
        self._gate("time", refusal, seconds)

    # ---- the verdict -------------------------------------------------------------------------------------------

    def _verdict(self, duration_s: float) -> Evaluation:
        if not self.record.sizes and self.held is not None:  # nothing was compared: no switch makes that correct
            name, refusal = self.held
            self.record.gates[name] = dataclasses.replace(
                self.record.gates[name], passed=False, reason=refusal.reason, message=refusal.message
            )
        gates = tuple(self.record.gates[name] for name in GATES if name in self.record.gates)
        failed = next((gate for gate in gates if not gate.passed), None)
        correct = failed is None and bool(self.record.sizes)
        score = combined_score(correct, self.record.sizes.values())
        rejection = Rejection(reason=failed.reason or "", message=failed.message) if failed else None
        kept = texts.collect(
            self.config,
            self.artefacts.get(self.record.texts_size),
            self.record.jaxpr,
            self.record.ptx,
            correct=correct,
        )
        return Evaluation(
            task=self.task.id,
            task_version=self.task.version,
            target=self.target,
            correct=correct,
            combined_score=score,
            status="accepted" if correct else "rejected",
            stage=failed.name if failed else None,
            reason=failed.reason if failed else None,
            message=failed.message if failed else "",
            gates=gates,
            filters=self.record.filters,
            sizes=self.record.sizes,
            compiled=self.record.compiled,
            ran_on=self.record.ran_on,
            compiled_for=tuple(sorted(self.record.compiled)),
            jail=self.record.jail,
            seeds=self.record.seeds,
            candidate_sha256=hashlib.sha256(self.source.encode("utf-8", "surrogatepass")).hexdigest(),
            duration_s=round(duration_s, 4),
            timer=self.record.timer,
            text_feedback=describe(
                self.task,
                rejection,
                self.record.sizes,
                self.record.compiled,
                timing=self.record.timing,
                device=self.record.ran_on,
            ),
            output_text=self.record.output_text,
            environment={
                **environment(),
                "driver": driver_version() if self.target == "cuda" else None,
                "device": self.record.ran_on,
                **({"timing": self.record.timing} if self.record.timing else {}),
                **({"disabled_gates": list(off)} if (off := self.config.judging.disabled_gates) else {}),
            },
            texts_size=self.record.texts_size if kept else None,
            texts=kept,
        )


def _larger(one: Compiled | None, other: Compiled) -> Compiled:
    """The larger of each figure, so that one entry stands for all timed sizes."""
    if one is None:
        return other
    return Compiled(
        sm=one.sm,
        registers=max(one.registers, other.registers),
        spill_bytes=max(one.spill_bytes, other.spill_bytes),
        shared_bytes=max(one.shared_bytes, other.shared_bytes),
        occupancy=min(one.occupancy, other.occupancy),
        ptx_bytes=max(one.ptx_bytes, other.ptx_bytes),
        seconds=one.seconds + other.seconds,
    )


def _worse(one: SizeResult, other: SizeResult) -> SizeResult:
    """The worse of two runs at one size: the one that is wrong, or nearer to its bound."""
    if one.correct != other.correct:
        return other if one.correct else one

    def share(result: SizeResult) -> float:
        if result.normwise_error is None or result.bound is None:
            return float("inf")
        return result.normwise_error / result.bound if result.bound else result.normwise_error

    return other if share(other) > share(one) else one


def _finite(value: float | None) -> float | None:
    return value if value is not None and np.isfinite(value) else None


def _rng(seed: int) -> np.random.Generator:
    return np.random.default_rng(seed)


def _size(name: str) -> Literal["small", "medium", "large"]:
    if name not in ("small", "medium", "large"):
        raise ConfigError(f"judging.timed_sizes: expected small, medium or large; got {name!r}.")
    return name  # type: ignore[return-value]


@contextmanager
def _clock() -> Iterator[Callable[[], float]]:
    start = time.perf_counter()
    yield lambda: time.perf_counter() - start
