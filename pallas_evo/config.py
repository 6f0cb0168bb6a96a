"""Limits, sizes, repeats and thresholds: one schema, read from `configs/` through OmegaConf.

Precedence, lowest first: the defaults here (written out in `configs/default.yaml`; a test holds the two equal), the
file of `--config`, then every `--set key=value`. Unknown keys are refused by name. What was resolved is stored with
each run.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from io import StringIO
from pathlib import Path
from typing import Any, cast

from pallas_evo.errors import ConfigError


@dataclass
class TraceLimits:
    """What the tracer (A) may use. Two exports run side by side, each under these limits."""

    deadline_s: float = 30.0
    memory_bytes: int = 8 << 30  # address space; below 1 GB `import jax` dies
    cpu_s: int = 40
    file_bytes: int = 16 << 20
    output_bytes: int = 64 << 10  # of stdout and of stderr kept as text; what comes after is drained and dropped
    artefact_bytes: int = 4 << 20  # one size's export
    device_kind: str = "NVIDIA A100 80GB PCIe"


@dataclass
class ArtefactLimits:
    """What the validator (B) lets through."""

    deadline_s: float = 30.0
    memory_bytes: int = 8 << 30
    source_bytes: int = 256 << 10
    operations: int = 20_000  # in the whole program, Triton IR included
    kernels: int = 64
    block_elements: int = 1 << 20
    glue_constant_bytes: int = 64 << 10
    moved_ratio: float = 8.0  # bytes moved outside the kernels, over the task's input plus output bytes
    grid_programs: int = 1 << 31
    num_warps: int = 32
    num_stages: int = 16


@dataclass
class CompileLimits:
    """Offline compiling of the Triton IR by Triton and ptxas (the `ptx` extra)."""

    enabled: bool = True
    architectures: list[str] = field(default_factory=lambda: ["sm_80", "auto"])  # auto: the GPU's at hand
    deadline_s: float = 20.0


@dataclass
class RunLimits:
    """What the runner (C) may use."""

    deadline_s: float = 60.0  # of one run in the executor
    device_deadline_s: float = 3.0  # of a program's kernels on a GPU, transfers to it not counted
    memory_bytes: int = 16 << 30
    lane_elements: int = 1 << 22  # elements of one value that the executor holds at once: the grid goes in chunks
    executor_timed_size_s: float = 1.0  # with a GPU the executor runs the timed size too where it takes less


@dataclass
class Numerics:
    """Bounds of the numerics gate (docs/numerics.md)."""

    yardstick_factor: float = 4.0
    normwise_floor: float = 2e-6
    dot_rtol: float = 1e-3
    dot_atol_rms: float = 2e-3
    f32_rtol: float = 1e-5
    f32_atol_rms: float = 1e-5


@dataclass
class Filters:
    """Thresholds of the five filters: each is relative to the reference (docs/filters.md)."""

    output_range: float = 0.02
    output_std: float = 0.02
    axes_variation: float = 0.02
    input_impact: float = 0.05
    degenerate_absolute: float = 0.01  # the published filters' threshold, applied to tasks only


@dataclass
class Judging:
    """Which sizes are judged, with how many seeds, and which gates are applied."""

    small_seeds: int = 3
    variant_seeds: int = 1
    medium_seeds: int = 2  # with a GPU only
    timed_sizes: list[str] = field(default_factory=lambda: ["medium"])
    disabled_gates: list[str] = field(default_factory=list)  # for tests and studies: a score made so is marked
    numerics: Numerics = field(default_factory=Numerics)
    filters: Filters = field(default_factory=Filters)


@dataclass
class Timer:
    """How a candidate is timed on a GPU."""

    name: str = "cupti"  # or wall; where CUPTI is not there the wall clock takes over, and the record says so
    repeats: int = 12  # timed calls, each on inputs of its own
    baseline_inputs: int = 12  # input sets that the baseline uses in turn, where they are no larger than inputs_bytes
    inputs_bytes: int = 8 << 30  # of all input sets of a measurement; where it would be more, the baseline has two
    baseline_drift: float = 0.05  # between the halves of a measurement; over it, it is taken again
    attempts: int = 3
    judged_elements: int = 1 << 24  # of the timed calls' inputs or outputs; beyond it a secret subset of them is judged
    judged_outputs: int = 2  # at least
    slow_run_s: float = 0.1  # of one run by the host's clock; a slower program is timed slow_repeats times only
    slow_repeats: int = 4
    implausible_floor: float = 0.9  # below this share of the physical floor a time is implausible
    suspicious_speedup: float = 10.0  # above it the candidate is judged again in a fresh process, with new seeds


@dataclass
class Texts:
    """Which intermediate texts of a candidate go to the archive, at one size: Jaxpr, StableHLO, Triton IR, PTX."""

    keep: str = "accepted"  # those of accepted candidates; or all, or none
    jaxpr_bytes: int = 256 << 10  # a longer one is left out
    bytes: int = 2 << 20  # of each of the others, likewise


@dataclass
class Config:
    """Everything that one evaluation depends on, beside the candidate and the task."""

    allow_unjailed: bool = False
    trace: TraceLimits = field(default_factory=TraceLimits)
    artefact: ArtefactLimits = field(default_factory=ArtefactLimits)
    compile: CompileLimits = field(default_factory=CompileLimits)
    run: RunLimits = field(default_factory=RunLimits)
    judging: Judging = field(default_factory=Judging)
    timer: Timer = field(default_factory=Timer)
    texts: Texts = field(default_factory=Texts)


def load_config(file: Path | None = None, overrides: Sequence[str] = (), *, text: str | None = None) -> Config:
    """Merge defaults, one YAML file and `key=value` overrides.

    Args:
        file: the YAML file; with `text` only its name, for messages.
        overrides: `key=value`, each over what came before.
        text: the file's content, where somebody else has read it.

    Raises:
        ConfigError: the file cannot be read, is not YAML, or a key or a value does not fit the schema.
    """
    from omegaconf import OmegaConf
    from omegaconf.errors import OmegaConfBaseException
    from yaml import YAMLError

    where = str(file) if file else "--set"
    try:
        merged = OmegaConf.structured(Config)
        if text is not None:
            merged = OmegaConf.merge(merged, OmegaConf.load(StringIO(text)))
        elif file is not None:
            merged = OmegaConf.merge(merged, OmegaConf.load(file))
        where = "--set"
        for override in overrides:
            if "=" not in override:
                raise ConfigError(f"--set {override}: expected KEY=VALUE, for example --set judging.small_seeds=5.")
            merged = OmegaConf.merge(merged, OmegaConf.from_dotlist([override]))
        return cast(Config, OmegaConf.to_object(merged))
    except OSError as error:
        raise ConfigError(f"{where}: cannot be read ({error.strerror}). Give a YAML file.") from error
    except (OmegaConfBaseException, YAMLError, ValueError, TypeError) as error:
        said = str(error).strip().splitlines()[0]
        raise ConfigError(f"{where}: {said} The keys are those of configs/default.yaml.") from error


def to_yaml(config: Config) -> str:
    """The resolved configuration as YAML, for the record."""
    from omegaconf import OmegaConf

    return OmegaConf.to_yaml(OmegaConf.structured(config))


def to_dict(config: Config) -> dict[str, Any]:
    """The resolved configuration as plain containers, for `--json` and for the archive."""
    from dataclasses import asdict

    return asdict(config)
