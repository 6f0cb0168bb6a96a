"""Honest exports pass, and what comes out is a program of ours: parsable, without a trace of where it came from."""

from __future__ import annotations

import hashlib
import subprocess
import sys
import textwrap
from pathlib import Path

import jax
import jax.numpy as jnp
import pytest
from artefact_programs import HONEST, LIMITS, ONE, SEEDS, accepted, export_bytes, judge, relu, seed_kernel, ttir_of
from jax.experimental.pallas import triton as plgpu

from pallas_evo.artefact import rules, validate
from pallas_evo.artefact.parsing import parse, text_of
from pallas_evo.tasks import dims_of, load_tasks, workload
from pallas_evo.types import Artefact, Task


@pytest.mark.parametrize("name", HONEST)
def test_honest_program_is_accepted(name: str) -> None:
    function, task = HONEST[name]
    artefact = accepted(judge(function, task))
    assert artefact.sha256 == hashlib.sha256(artefact.module.encode()).hexdigest()
    assert text_of(parse(artefact.module, "test")) == artefact.module
    assert "loc(" not in artefact.module
    for kernel in artefact.kernels:
        assert text_of(parse(kernel.ttir, "test")) == kernel.ttir
        assert "loc(" not in kernel.ttir


def _seed(task: Task) -> Path:
    return SEEDS / f"level{task.level}" / f"{task.id.split('/')[1]}.py"


@pytest.mark.parametrize("task", load_tasks(), ids=lambda task: task.id)
def test_seed_is_accepted(task: Task) -> None:
    path = _seed(task)
    if not path.exists():
        pytest.skip("this seed is not written yet")
    small = workload(task, dims_of(task, "small"), "small")
    artefact = accepted(validate(export_bytes(seed_kernel(path), small), small, LIMITS))
    assert artefact.kernels
    assert text_of(parse(artefact.module, "test")) == artefact.module


def test_what_the_validator_prints_is_accepted_again_unchanged() -> None:
    for name in ("relu", "accumulate", "two outputs", "inner jit"):
        function, task = HONEST[name]
        first = accepted(judge(function, task))
        again = accepted(validate(first.module.encode(), task, LIMITS))
        assert again.module == first.module


def test_facts() -> None:
    artefact = accepted(judge(lambda x: relu(x.T)))
    (kernel,) = artefact.kernels
    assert (kernel.grid, kernel.num_warps, kernel.num_stages, kernel.name) == ((1, 1, 1), 4, 1, "body")
    assert kernel.ttir == ttir_of(artefact.module)
    assert artefact.moved_bytes == 16 * 16 * 4


_SOURCE = """
import jax, jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton as plgpu

def {body}(x_ref, o_ref):
    o_ref[...] = jnp.maximum(x_ref[...], 0.0)

def kernel({argument}):
    call = pl.pallas_call({body}, out_shape=jax.ShapeDtypeStruct((16, 16), jnp.float32),
                          compiler_params=plgpu.CompilerParams(num_warps=4, num_stages=1))
    return call(jnp.pad({argument}[:8], ((0, 8), (0, 0))))
"""


def test_hash_does_not_depend_on_process_folder_or_names(tmp_path: Path) -> None:
    hashes = []
    for folder, body, argument, blank in (("one", "body", "x", ""), ("two/deeper", "stage", "values", "\n\n\n")):
        file = tmp_path / folder / "candidate.py"
        file.parent.mkdir(parents=True)
        file.write_text(blank + _SOURCE.format(body=body, argument=argument))
        code = f"""
            import sys
            sys.path.insert(0, {str(Path(__file__).parent)!r})
            from artefact_programs import *
            print(judge(seed_kernel(Path({str(file)!r}))).sha256)
        """
        done = subprocess.run(
            [sys.executable, "-c", textwrap.dedent(code)], cwd=file.parent, capture_output=True, text=True, timeout=120,
            env={"PYTHONPATH": str(SEEDS.parent), "JAX_PLATFORMS": "cpu", "PATH": "/usr/bin:/bin"}, check=True,
        )  # fmt: skip
        hashes.append(done.stdout.strip())
    assert len(hashes[0]) == 64
    assert hashes[0] == hashes[1]


def test_different_programs_have_different_hashes() -> None:
    found = [
        result.sha256 for function, task in HONEST.values() if isinstance(result := judge(function, task), Artefact)
    ]
    # `debug` and `metadata` differ in what is dropped only.
    assert len(set(found)) >= len(found) - 1


def test_names_of_the_candidate_do_not_reach_the_program() -> None:
    def secret_name(x: jax.Array) -> jax.Array:
        return jax.jit(lambda v: relu(jnp.roll(v, 1, 0)))(x)

    artefact = accepted(judge(secret_name))
    assert "secret_name" not in artefact.module
    assert "_roll" not in artefact.module
    assert "body" not in artefact.module


def test_serialised_bytes_and_printed_text_give_one_verdict() -> None:
    data = export_bytes(relu, ONE)
    assert accepted(validate(data, ONE, LIMITS)).module == accepted(validate(data, ONE, LIMITS)).module


def test_the_call_target_is_the_one_that_jax_uses() -> None:
    assert getattr(plgpu, "CUSTOM_CALL_TARGET_NAME", rules.TRITON_CALL) == rules.TRITON_CALL


def test_the_executor_runs_every_operation_that_is_let_through() -> None:
    executor = pytest.importorskip("pallas_evo.running.executor")
    assert set(rules.TRITON) <= set(executor.ALLOWED_TRITON_OPS)
    assert set(rules.LIBDEVICE) <= set(executor.LIBDEVICE_SYMBOLS)
    assert set(rules.GLUE) - {"func.return"} <= set(executor.ALLOWED_GLUE_OPS)
