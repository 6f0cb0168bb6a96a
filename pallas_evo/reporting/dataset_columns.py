"""The dataset's columns, in their order: name, type, unit, and how each figure is made. The schema of the files, the
card and the docs' table come from this one table.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Kind = Literal["text", "whole", "real", "truth", "filters", "samples"]


@dataclass(frozen=True)
class Column:
    """One column. `how` says where its values come from; a value that was not measured is null."""

    name: str
    kind: Kind
    unit: str
    how: str


COLUMNS = (
    Column("Op_Name", "text", "", "the operator; `L{Level_ID}/{Op_Name}` is the task's id"),
    Column("Level_ID", "whole", "", "1: single operators, 2: fused patterns, 3: parts of architectures"),
    Column("Task_ID", "whole", "", "the task's number, 1 to 45"),
    Column(
        "Pallas_Runtime", "real", "ms",
        "median device time of one call at medium (where medium was not timed, at the first size that was), cold L2, "
        "compile time not in it; by the clock that Timer names",
    ),
    Column(
        "JAX_Baseline_Runtime", "real", "ms",
        "median device time of `jax.jit` of the reference on inputs of the same shape, interleaved with the kernel's "
        "calls in the same process; compile time not in it",
    ),
    Column("Pallas_Speedup", "real", "1", "JAX_Baseline_Runtime / Pallas_Runtime: over 1 is faster than XLA"),
    Column("Pallas_Code", "text", "", "the program: one Python file"),
    Column("Pallas_Code_Original", "text", "", "the TPU-sized original that the task's seed was made from"),
    Column("JAX_Baseline_Code", "text", "", "the reference as a file of its own; `jax.jit(reference)` is the baseline"),
    Column("Correct", "truth", "", "whether every gate let it through; null: never judged"),
    Column("Error", "text", "", "`reason: message` of the first gate that refused it; null where none did"),
    Column("Target_Hardware", "text", "", "the device that it ran on; `cpu`: the executor, which times nothing"),
    Column("Framework", "text", "", "what the kernel is written in"),
    Column("Backend", "text", "", "what Pallas lowers it to: `triton`, and `tpu` for the originals"),
    Column(
        "Fix_Applied", "text", "",
        "what was changed to make the task's seed from its TPU-sized original; null where no seed is an ancestor",
    ),
    Column("Kernel_Name", "text", "", "the program's name, or the operator's with the first digits of Program_ID"),
    Column("Program_ID", "text", "", "SHA-256 of the file's UTF-8 bytes"),
    Column("Parent_ID", "text", "", "Program_ID of the program that it was made from"),
    Column("Generation", "whole", "", "generation of its first appearance in a run of evolution"),
    Column("Compile_Runtime", "real", "ms", "Triton and ptxas for sm_80, offline, all timed sizes together"),
    Column(
        "Max_Diff", "real", "1",
        "largest normwise error against the float64 reference, ||out - ref|| / ||ref||, over all judged sizes",
    ),
    Column("Filters", "filters", "", "the anti-gaming filters: verdict, value, threshold; a value not finite is null"),
    Column("Jaxpr", "text", "", "the tracer's word: the candidate's own code runs in that process and may make it up"),
    Column("StableHLO", "text", "", "of the validated program that ran, printed by the validator, Triton IR inside"),
    Column("Triton_IR", "text", "", "of the validated program's kernels, one after another"),
    Column("PTX_sm_80", "text", "", "what the offline Triton made of Triton_IR for sm_80"),
    Column("Registers", "whole", "1", "per thread, sm_80, by ptxas; the most of all kernels and timed sizes"),
    Column("Shared_Memory", "whole", "B", "per block, sm_80, by Triton; the most of all kernels and timed sizes"),
    Column("Roofline_Percent", "real", "%", "physical floor (what must be read and computed) / Pallas_Runtime"),
    Column("JAX_Version", "text", "", "that judged it"),
    Column("Timer", "text", "", "`cupti`: device time; `wall`: the host's clock; `untimed`: no times were taken"),
    Column("Samples", "samples", "us", "raw samples: size, slot (`candidate`, `xla`), microseconds"),
    Column("Seed_SHA256", "text", "", "Program_ID of the seed that it descends from (a seed's own)"),
    Column("License", "text", "", "of the program, by the SPDX line in its file; null where it has none"),
    Column(
        "Origin", "text", "",
        "`seed`, `tpu_original`, `hand` (a file that somebody had judged), `offline mutator`, or the name of the model "
        "that wrote it (`mutation` where no name was kept)",
    ),
)  # fmt: skip

NAMES = tuple(column.name for column in COLUMNS)
