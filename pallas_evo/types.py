"""The vocabulary that every layer speaks: frozen, typed, without behaviour.

Shapes are tuples of ints, dtypes are NumPy names (`"float32"`), times carry their unit in the field's name, and what
was not measured is None, never 0.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

Precision = Literal["exact", "f32", "dot"]
Target = Literal["cpu", "cuda"]


@dataclass(frozen=True, kw_only=True)
class ArraySpec:
    """Shape and dtype of one array."""

    shape: tuple[int, ...]
    dtype: str


@dataclass(frozen=True, kw_only=True)
class InputSpec:
    """One input of a task: `shape` mixes dimension letters and fixed numbers, `law` names how values are drawn."""

    name: str
    dtype: str
    law: str
    shape: tuple[str | int, ...]


@dataclass(frozen=True, kw_only=True)
class Dim:
    """One dimension letter: the range a seed must be right in, and its value at the three table sizes."""

    name: str
    min: int
    max: int
    small: int
    medium: int
    large: int


@dataclass(frozen=True, kw_only=True)
class Stress:
    """One more correctness case: some inputs scaled, or drawn uniformly from a range of their own.

    `inputs` names the inputs it touches. Exactly one of `scale` and `uniform` (low, high) is set.
    """

    text: str
    inputs: tuple[str, ...]
    scale: float | None = None
    uniform: tuple[float, float] | None = None


@dataclass(frozen=True, kw_only=True)
class Task:
    """One of the 45 operators to be written as a Pallas kernel.

    `output_shape` mixes letters, numbers and one difference of letters (`"L-T+1"`). `version` rises whenever a change
    here would change a score: scores of different versions are never compared.
    """

    id: str
    number: int
    level: int
    category: str
    inputs: tuple[InputSpec, ...]
    output_shape: tuple[str | int, ...]
    output_dtype: str
    dims: Mapping[str, Dim]
    formula: str
    precision: Precision
    note: str = ""
    stress: Stress | None = None
    version: int = 1


@dataclass(frozen=True, kw_only=True)
class Workload:
    """A task at one concrete size. `label` is `small`, `medium`, `large`, `variant`, or `odd-1`, `odd-2`, ..."""

    task_id: str
    label: str
    dims: Mapping[str, int]
    inputs: tuple[ArraySpec, ...]
    output: ArraySpec


@dataclass(frozen=True, kw_only=True)
class Floor:
    """What every correct program must do: bytes that must be read from memory, floating-point operations."""

    bytes_read: int
    flops: int


@dataclass(frozen=True, kw_only=True)
class Rejection:
    """Why a candidate is refused: a stable short `reason` (pallas_evo.reasons) and a message on what to change."""

    reason: str
    message: str


@dataclass(frozen=True, kw_only=True)
class Kernel:
    """One Triton call of an artefact, as the validator read it."""

    name: str
    grid: tuple[int, int, int]
    num_warps: int
    num_stages: int
    ttir: str


@dataclass(frozen=True, kw_only=True)
class Artefact:
    """A candidate at one workload, after validation.

    `module` is StableHLO text that the validator printed itself, with the Triton IR printed inside it; `sha256` is the
    hash of that text, which carries no source location, so that equal programs have equal hashes.
    """

    workload: Workload
    module: str
    sha256: str
    kernels: tuple[Kernel, ...]
    moved_bytes: int


@dataclass(frozen=True, kw_only=True)
class Compiled:
    """What Triton and ptxas made of all kernels of an artefact for one architecture (the largest of each figure)."""

    sm: str
    registers: int
    spill_bytes: int
    shared_bytes: int
    occupancy: float
    ptx_bytes: int
    seconds: float


@dataclass(frozen=True, kw_only=True)
class Counts:
    """What one run of an artefact did, summed over all programs of all its kernels, by the executor's count.

    `bytes_loaded` and `bytes_stored` count every lane that its mask lets through, each time (an element loaded by two
    programs counts twice); an atomic update counts as both. `flops` counts one for each element of each element-wise
    float operation and libdevice call, masked lanes too, for each float operation of a reduction's or scan's combine
    function once an element, and 2 M N K for a dot.
    """

    bytes_loaded: int
    bytes_stored: int
    flops: int


@dataclass(frozen=True, kw_only=True)
class GateResult:
    """One gate's verdict. `reason` is None when it passed."""

    name: str
    passed: bool
    reason: str | None
    message: str
    seconds: float


@dataclass(frozen=True, kw_only=True)
class FilterResult:
    """One anti-gaming filter's verdict, with the value that it computed and the threshold it held it against."""

    passed: bool
    value: float | None
    threshold: float | None
    message: str


@dataclass(frozen=True, kw_only=True)
class Timing:
    """Raw samples of one timed program. `median_us` and `spread` derive from them; the samples are the record."""

    timer: str
    samples_us: tuple[float, ...]
    median_us: float
    spread: float


@dataclass(frozen=True, kw_only=True)
class SizeResult:
    """Correctness and time at one size. `shape` is the list of input shapes."""

    shape: tuple[tuple[int, ...], ...]
    correct: bool
    normwise_error: float | None = None
    bound: float | None = None
    median_us: float | None = None
    xla_us: float | None = None
    floor_us: float | None = None
    roofline_percent: float | None = None
    samples_us: tuple[float, ...] | None = None


@dataclass(frozen=True, kw_only=True)
class Evaluation:
    """The judge's whole word on one candidate. `combined_score` is 0.0 unless `correct`.

    `timer` is `untimed` without a GPU; task, version, device, timer and timed sizes are a score's identity. `texts` is
    what the candidate was on the way at the size `texts_size`: `stablehlo` and `triton_ir` as the validator printed
    them, `ptx_sm_80` from the compiler, and `jaxpr`, which is the tracer's word and may be made up by the candidate.
    """

    task: str
    task_version: int
    target: Target
    correct: bool
    combined_score: float
    status: Literal["accepted", "rejected"]
    stage: str | None
    reason: str | None
    message: str
    gates: tuple[GateResult, ...]
    filters: Mapping[str, FilterResult]
    sizes: Mapping[str, SizeResult]
    compiled: Mapping[str, Compiled]
    ran_on: str | None
    compiled_for: tuple[str, ...]
    jail: str | None
    seeds: Mapping[str, int]
    candidate_sha256: str
    duration_s: float
    timer: str = "untimed"
    text_feedback: str = ""
    output_text: str = ""
    environment: Mapping[str, Any] = field(default_factory=dict)
    texts_size: str | None = None
    texts: Mapping[str, str] = field(default_factory=dict)
