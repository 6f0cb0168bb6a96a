"""The variants written by hand: each says what it is, keeps the contract, and is right where its seed must be.

Exported in this process (they are our own code), validated, and run by the executor at an odd size, which the judge
never draws. Through all gates they go with the campaign, or by `pallas_evo evaluate`.
"""

from __future__ import annotations

import runpy
from pathlib import Path

import numpy as np
import pytest

from pallas_evo.artefact import validate
from pallas_evo.config import ArtefactLimits, Numerics
from pallas_evo.evolution.blocks import split_block
from pallas_evo.evolution.knobs import knobs_of
from pallas_evo.judging.contract import check_contract
from pallas_evo.judging.numerics import compare
from pallas_evo.paths import seed_file
from pallas_evo.running.executor import execute
from pallas_evo.tasks import dims_of, draw_inputs, get_task, odd_dims, reference64, workload, yardstick
from pallas_evo.tracing.child import _export
from pallas_evo.types import Rejection

VARIANTS = Path(__file__).resolve().parents[3] / "benchmarks" / "variants"
FILES = sorted(VARIANTS.glob("level*/*.py"))

each_file = pytest.mark.parametrize("file", FILES, ids=lambda file: f"{file.parent.name}/{file.stem}")


def task_of(file: Path):
    return get_task(f"L{file.parent.name.removeprefix('level')}/{file.stem.partition('-')[0]}")


def artefact_of(file: Path, dims):
    """The validated program at a size, lowered for a GPU that need not be here."""
    task = task_of(file)
    size = workload(task, dims, "small")
    kernel = runpy.run_path(str(file))["kernel"]
    shapes = {"inputs": [[s.shape, s.dtype] for s in size.inputs], "output": [size.output.shape, size.output.dtype]}
    made = validate(_export(kernel, shapes, "NVIDIA A100 80GB PCIe"), size, ArtefactLimits())
    assert not isinstance(made, Rejection), made
    return made


def test_there_are_variants_of_all_three_levels():
    assert {file.parent.name for file in FILES} == {"level1", "level2", "level3"}


@each_file
def test_a_variant_says_what_it_is_and_is_no_copy(file):
    source, task = file.read_text(encoding="utf-8"), task_of(file)
    assert not isinstance(check_contract(source, task, ArtefactLimits().source_bytes), Rejection)
    assert f"Task: {task.id}. Origin: a variant of the seed, written by hand" in source
    assert "SPDX-License-Identifier: Apache-2.0" in source
    parts, seed = split_block(source), split_block(seed_file(task.id).read_text(encoding="utf-8"))
    assert parts is not None
    assert parts[1] != seed[1]
    assert knobs_of(parts[1]), "the mutator goes on from a variant by its constants"


@each_file
def test_a_variant_is_validated_at_small(file):
    assert artefact_of(file, dims_of(task_of(file), "small")).kernels


@each_file
def test_a_variant_is_right_at_an_odd_size(file):
    task = task_of(file)
    dims = odd_dims(task)[0]
    made, inputs = artefact_of(file, dims), draw_inputs(task, dims, np.random.default_rng(0))
    done = execute(made.module, inputs, made.workload.output)
    assert not isinstance(done, Rejection), done
    found = compare(done.output, reference64(task, inputs), yardstick(task, inputs), task.precision, Numerics())
    assert found.reason is None, found.message
