"""How far this machine can prove a seed: the rungs, each a verdict with the figures behind it.

trace         two independent exports at every size give one and the same valid program
lower         for an A100 and an H100 it is the same program too
ptx           Triton and ptxas compile it for both: no spills, shared memory and compile time within bounds
numerics_cpu  the executor runs it: every access in bounds, every element written, values by the task's bounds
numerics_gpu  a GPU runs it: values by the same bounds, at the three table sizes

A rung that this machine cannot run is neither passed nor failed: its `passed` is None, and its message says why.
"""

from __future__ import annotations

import hashlib
import math
import platform
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field, replace
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from pallas_evo import __version__
from pallas_evo.config import Config
from pallas_evo.tasks import dims_of, draw_inputs, draw_variant_dims, odd_dims, workload
from pallas_evo.types import Artefact, Compiled, Evaluation, Rejection, Task, Workload

if TYPE_CHECKING:
    from pallas_evo.running import DeviceRunner

RUNGS = ("trace", "lower", "ptx", "numerics_cpu", "judge", "numerics_gpu")
TABLE_SIZES = ("small", "medium", "large")
DEVICE_KINDS = {"A100": "NVIDIA A100 80GB PCIe", "H100": "NVIDIA H100 80GB HBM3"}
ARCHITECTURES = ("sm_80", "sm_90")
SHARED_LIMIT_BYTES = 163 << 10  # what sm_80 gives one block; sm_90 gives more
COMPILE_LIMIT_S = 5.0  # of wall clock in the compiling process: Triton's passes and ptxas, all kernels of one size
SMALL_SEEDS = 2

_JUDGES = (
    "tasks",
    "jail",
    "tracing",
    "artefact",
    "running",
    "judging",
    "evaluation",
    "config.py",
    "types.py",
    "verification.py",
)


@dataclass(frozen=True, kw_only=True)
class Rung:
    """One rung's verdict. `details` holds plain values only; `evaluation` is the judge's whole word, at `judge`."""

    name: str
    passed: bool | None
    message: str = ""
    seconds: float | None = None
    details: Mapping[str, Any] = field(default_factory=dict)
    evaluation: Evaluation | None = None


def gpu_name() -> str | None:
    """The first GPU's model by its driver, or None without a GPU; starts nothing."""
    from pallas_evo.running import gpu_present

    if not gpu_present():
        return None
    for file in sorted(Path("/proc/driver/nvidia/gpus").glob("*/information")):
        for line in file.read_text(errors="replace").splitlines():
            if line.startswith("Model:"):
                return line.partition(":")[2].strip()
    return "NVIDIA GPU"


def environment(gpu: str | None) -> dict[str, Any]:
    """What a verdict depends on beside the seed: versions, this package's judging code, and the machine's kind."""
    from pallas_evo.jail import level
    from pallas_evo.running import driver_version

    return {
        "pallas_evo": __version__,
        **{name: _version(name) for name in ("jax", "jaxlib", "numpy", "triton")},
        "python": platform.python_version(),
        "code_sha256": _code_sha256(),
        "machine": f"{platform.system()} {platform.machine()}",
        "processor": _processor(),
        "gpu": gpu,
        "driver": driver_version(),
        "jail": level(),
    }


def _version(distribution: str) -> str | None:
    try:
        return version(distribution)
    except PackageNotFoundError:
        return None


def _code_sha256() -> str:
    """Of the code that judges: a verdict of another validator or executor is not this one's."""
    package = Path(__file__).parent
    digest = hashlib.sha256()
    for part in _JUDGES:
        path = package / part
        for file in [path] if path.is_file() else sorted(path.rglob("*.py")):
            digest.update(file.relative_to(package).as_posix().encode() + b"\0" + file.read_bytes() + b"\0")
    return digest.hexdigest()


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(errors="replace").splitlines()
    except OSError:
        return platform.processor()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "")


def workloads_of(task: Task) -> tuple[Workload, ...]:
    """Every size that a seed answers for here: the table's, a variant (the same each time), and the odd ones."""
    named = [(size, dims_of(task, size)) for size in ("small", "medium", "large")]
    named.append(("variant", draw_variant_dims(task, np.random.default_rng(task.number))))
    named += [(f"odd-{n}", dims) for n, dims in enumerate(odd_dims(task), 1)]
    return tuple(workload(task, dims, label) for label, dims in named)


class Verification:
    """Verifies programs one after another or from several threads; holds what all of them share."""

    def __init__(self, config: Config | None = None, *, gpu: str | None = None) -> None:
        self.config = config or Config()
        self.gpu = gpu
        self._device = threading.Lock()  # large sizes fill memory on both sides: one program at a time

    def not_run(self) -> dict[str, str]:
        """The rungs that this machine cannot run, and why."""
        missing = {}
        if find_spec("triton") is None:
            missing["ptx"] = "triton is not installed (the ptx extra)"
        if self.gpu is None:
            missing["numerics_gpu"] = "no GPU here"
        return missing

    def verify(self, task: Task, source: str, rungs: Sequence[str] = RUNGS) -> Iterator[Rung]:
        """Give the verdict of each of `rungs` as soon as it stands, in the order of RUNGS.

        Where the program has no valid export, only the rung that says so is given, and the others as not reached.

        Raises:
            PallasEvoError: our own failure.
        """
        missing = self.not_run()
        wanted = [rung for rung in RUNGS if rung in rungs and rung not in missing]
        for name in rungs:
            if name in missing:
                yield Rung(name=name, passed=None, message=missing[name])
        if not wanted:
            return
        with ExitStack() as stack:
            runner = None
            if "numerics_gpu" in wanted:  # it loads CUDA while the rungs below are climbed
                from pallas_evo.running import DeviceRunner

                runner = stack.enter_context(DeviceRunner(self.config.run))
            yield from self._climb(task, source, wanted, runner)

    def _climb(self, task: Task, source: str, wanted: Sequence[str], runner: DeviceRunner | None) -> Iterator[Rung]:
        seen, artefacts = self._lowered(task, source, need_h100="lower" in wanted)
        yield from (rung for rung in seen if rung.name in wanted or rung.passed is False)
        for name in wanted:
            if name in ("trace", "lower"):
                continue
            if artefacts is None:
                yield Rung(name=name, passed=None, message="not reached: there is no program to run")
            elif name == "ptx":
                yield self._ptx(artefacts)
            elif name == "numerics_cpu":
                yield self._numerics_cpu(task, artefacts)
            elif name == "judge":
                yield self._judge(task, source)
            elif runner is not None:
                yield self._numerics_gpu(runner, task, artefacts)

    # ---- trace and lower

    def _lowered(self, task: Task, source: str, *, need_h100: bool) -> tuple[list[Rung], dict[str, Artefact] | None]:
        """The rungs `trace` and `lower`, and the artefacts by label, of the A100's lowering."""
        from pallas_evo.artefact import validate_jailed
        from pallas_evo.artefact.jailed import start_validator
        from pallas_evo.tracing import Tracers, trace

        config = self.config
        unjailed = config.allow_unjailed
        sizes = workloads_of(task)
        table = sizes[: len(TABLE_SIZES)]
        limits = {gpu: replace(config.trace, device_kind=kind) for gpu, kind in DEVICE_KINDS.items()}
        started = time.perf_counter()
        with ExitStack() as stack:  # all four load JAX at once, and the validator comes up beside them
            a100 = stack.enter_context(Tracers(limits["A100"], allow_unjailed=unjailed))
            h100 = stack.enter_context(Tracers(limits["H100"], allow_unjailed=unjailed)) if need_h100 else None
            validator = stack.enter_context(start_validator(config.artefact, allow_unjailed=unjailed))
            traced = trace(source, task, sizes, limits["A100"], tracers=a100)
            if isinstance(traced, Rejection):
                return [_failed("trace", traced), _not_reached("lower")], None
            pairs = zip((*traced.modules, *traced.second), (*sizes, *sizes), strict=True)
            other = trace(source, task, table, limits["H100"], tracers=h100) if need_h100 else None
            extra = (
                [] if other is None or isinstance(other, Rejection) else list(zip(other.modules, table, strict=True))
            )
            verdicts = validate_jailed([*pairs, *extra], config.artefact, allow_unjailed=unjailed, worker=validator)
        seconds = round(time.perf_counter() - started, 3)
        first, second, third = verdicts[: len(sizes)], verdicts[len(sizes) : 2 * len(sizes)], verdicts[2 * len(sizes) :]
        artefacts: dict[str, Artefact] = {}
        for size, one, two in zip(sizes, first, second, strict=True):
            if isinstance(one, Rejection) or isinstance(two, Rejection):
                refused = one if isinstance(one, Rejection) else two
                assert isinstance(refused, Rejection)
                return [_failed("trace", refused, size), _not_reached("lower")], None
            if one.sha256 != two.sha256:
                message = "Two exports of the same source are different programs."
                differs = Rejection(reason="nondeterministic_trace", message=message)
                return [_failed("trace", differs, size), _not_reached("lower")], None
            artefacts[size.label] = one
        sizes_seen = {label: _of_artefact(artefact) for label, artefact in artefacts.items()}
        rung = Rung(
            name="trace",
            passed=True,
            seconds=seconds,
            details={"sizes": sizes_seen, "jail": traced.jail, "device_kind": traced.device_kind},
        )
        if other is None:
            return [rung], artefacts
        if isinstance(other, Rejection):
            return [rung, _failed("lower", other)], artefacts
        return [rung, _same(table, artefacts, third)], artefacts

    # ---- ptx

    def _ptx(self, artefacts: Mapping[str, Artefact]) -> Rung:
        """Compile the table sizes for both architectures, one that took long a second time: the machine was busy."""
        from pallas_evo.artefact import compile_offline, compile_offline_many

        deadline_s = self.config.compile.deadline_s
        started = time.perf_counter()
        several = [artefacts[size] for size in TABLE_SIZES]
        results = compile_offline_many(several, ARCHITECTURES, deadline_s)
        figures: dict[str, dict[str, Any]] = {}
        troubles = []
        for artefact, by_sm in zip(several, results, strict=True):
            label = artefact.workload.label
            for sm, done in by_sm.items():
                if isinstance(done, Compiled) and done.seconds > COMPILE_LIMIT_S:
                    again = compile_offline(artefact, sm, deadline_s)
                    done = min(done, again, key=lambda one: one.seconds) if isinstance(again, Compiled) else done
                if done is None:
                    return Rung(name="ptx", passed=None, message="this Triton cannot read the IR that this JAX prints")
                if isinstance(done, Rejection):
                    troubles.append(f"{label}, {sm}: {done.reason}: {done.message}")
                    continue
                figures.setdefault(label, {})[sm] = asdict(done)
                troubles += [f"{label}, {sm}: {trouble}" for trouble in _over(done)]
        return Rung(
            name="ptx",
            passed=not troubles,
            message=" ".join(troubles),
            seconds=round(time.perf_counter() - started, 3),
            details={"sizes": figures, "seconds_are": "wall clock of Triton and ptxas, all kernels of one size"},
        )

    # ---- the candidate's way

    def _judge(self, task: Task, source: str) -> Rung:
        """All gates that a candidate passes, on the CPU. It compiles too, for the verdict to hold figures and PTX."""
        from pallas_evo.evaluation import evaluate

        verdict = evaluate(source, task, target="cpu", config=self.config)
        said = "" if verdict.correct else f"{verdict.reason}: {verdict.message}"
        return Rung(
            name="judge",
            passed=verdict.correct,
            message=said,
            seconds=verdict.duration_s,
            details={"score": verdict.combined_score, "timer": verdict.timer, "seeds": dict(verdict.seeds)},
            evaluation=verdict,
        )

    # ---- numerics

    def _numerics_cpu(self, task: Task, artefacts: Mapping[str, Artefact]) -> Rung:
        from pallas_evo.running.host import HostRunner

        cases = [("small", seed, False) for seed in range(SMALL_SEEDS)]
        cases += [(label, SMALL_SEEDS, False) for label in artefacts if label not in TABLE_SIZES]
        if task.stress is not None:
            cases.append(("small", SMALL_SEEDS + 1, True))
        with HostRunner(self.config.run, allow_unjailed=self.config.allow_unjailed) as runner:
            return self._numerics("numerics_cpu", runner, task, artefacts, cases)

    def _numerics_gpu(self, runner: DeviceRunner, task: Task, artefacts: Mapping[str, Artefact]) -> Rung:
        cases = [(size, seed, False) for seed, size in enumerate(TABLE_SIZES)]
        with self._device:
            return self._numerics("numerics_gpu", runner, task, artefacts, cases)

    def _numerics(
        self,
        name: str,
        runner: Any,
        task: Task,
        artefacts: Mapping[str, Artefact],
        cases: Sequence[tuple[str, int, bool]],
    ) -> Rung:
        """Run every case and compare it; a runner refuses a bad access or an unwritten element by itself."""
        from pallas_evo.judging.numerics import compare
        from pallas_evo.tasks import reference64, yardstick

        started = time.perf_counter()
        seen, troubles = [], []
        for label, number, stress in cases:
            artefact = artefacts[label]
            seed = 1000 * task.number + number
            inputs = draw_inputs(task, artefact.workload.dims, np.random.default_rng(seed), stress=stress)
            ran = runner.run(artefact, inputs)
            case: dict[str, Any] = {
                "size": "stress" if stress else label,
                "dims": dict(artefact.workload.dims),
                "input_seed": seed,
            }
            seen.append(case)
            if isinstance(ran, Rejection):
                troubles.append(f"{case['size']} {case['dims']}: {ran.reason}: {ran.message}")
                continue
            output, counts, seconds = ran
            judged = compare(
                output,
                reference64(task, inputs),
                yardstick(task, inputs),
                task.precision,
                self.config.judging.numerics,
            )
            case |= {"normwise_error": _finite(judged.normwise_error), "bound": _finite(judged.bound)}
            case |= {"seconds": round(seconds, 4), "counts": asdict(counts) if counts is not None else None}
            if judged.reason is not None:
                troubles.append(f"{case['size']} {case['dims']}: {judged.reason}: {judged.message}")
        return Rung(
            name=name,
            passed=not troubles,
            message=" ".join(troubles),
            seconds=round(time.perf_counter() - started, 3),
            details={"cases": seen, "ran_on": runner.device},
        )


def worst_case(rung: Rung) -> Mapping[str, Any] | None:
    """The case of a numerics rung that came closest to its bound."""
    measured = [case for case in rung.details.get("cases", ()) if case.get("normwise_error") is not None]
    return max(measured, key=lambda case: case["normwise_error"] / (case["bound"] or math.inf), default=None)


def _same(table: Sequence[Workload], ours: Mapping[str, Artefact], others: Sequence[Artefact | Rejection]) -> Rung:
    """The rung `lower`: the H100's programs against the A100's."""
    hashes: dict[str, dict[str, str]] = {}
    troubles = []
    for size, other in zip(table, others, strict=True):
        if isinstance(other, Rejection):
            return _failed("lower", other, size)
        hashes[size.label] = {"A100": ours[size.label].sha256, "H100": other.sha256}
        if other.sha256 != ours[size.label].sha256:
            troubles.append(f"{size.label}: the H100's program is not the A100's.")
    return Rung(
        name="lower",
        passed=not troubles,
        message=" ".join(troubles),
        details={"artefact_sha256": hashes, "device_kinds": list(DEVICE_KINDS.values())},
    )


def _over(done: Compiled) -> list[str]:
    """Which of a seed's bounds a compiled program breaks."""
    troubles = []
    if done.spill_bytes:
        troubles.append(f"{done.spill_bytes} bytes of registers spilled.")
    if done.shared_bytes > SHARED_LIMIT_BYTES:
        troubles.append(f"{done.shared_bytes} bytes of shared memory; {SHARED_LIMIT_BYTES} allowed.")
    if done.seconds > COMPILE_LIMIT_S:
        troubles.append(f"{done.seconds:.1f} s to compile; {COMPILE_LIMIT_S:g} allowed.")
    return troubles


def _of_artefact(artefact: Artefact) -> dict[str, Any]:
    return {
        "dims": dict(artefact.workload.dims),
        "sha256": artefact.sha256,
        "moved_bytes": artefact.moved_bytes,
        "kernels": [
            {"name": one.name, "grid": list(one.grid), "num_warps": one.num_warps, "num_stages": one.num_stages}
            for one in artefact.kernels
        ],
    }


def _failed(name: str, refused: Rejection, size: Workload | None = None) -> Rung:
    where = f"{size.label} {dict(size.dims)}: " if size is not None else ""
    return Rung(name=name, passed=False, message=f"{where}{refused.reason}: {refused.message}")


def _not_reached(name: str) -> Rung:
    return Rung(name=name, passed=None, message="not reached: there is no program to run")


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None
