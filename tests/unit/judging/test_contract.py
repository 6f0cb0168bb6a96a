"""What a candidate's file may say: the contract and the source analysis, each with the code that must come back."""

from __future__ import annotations

import ast

import pytest

from pallas_evo import paths, tasks
from pallas_evo.judging import check_contract
from pallas_evo.judging.filters import analyse_source
from pallas_evo.types import Rejection

RELU = paths.seed_file("L1/relu").read_text()
TASK = tasks.get_task("L1/relu")
ADD = tasks.get_task("L1/add")
BLOCK = "# EVOLVE-BLOCK-START\n{}\n# EVOLVE-BLOCK-END\n"


def reason(source: str, task=TASK) -> str | None:
    found = check_contract(source, task, 256 << 10)
    return found.reason if isinstance(found, Rejection) else None


@pytest.mark.parametrize("task", tasks.load_tasks(), ids=lambda task: task.id)
def test_every_seed_passes_both(task):
    tree = check_contract(paths.seed_file(task.id).read_text(), task, 256 << 10)
    assert isinstance(tree, ast.Module)
    result, refusal = analyse_source(tree)
    assert refusal is None, result.message


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        (RELU + "x = = 1\n", "syntax"),
        ("\0", "syntax"),
        ("(" * 5000 + ")" * 5000, "syntax"),
        ("x = " + "-" * 100_000 + "1", "syntax"),
        (BLOCK.format("x = 1"), "no_kernel"),
        (BLOCK.format("class A:\n    def kernel(self, x): return x"), "no_kernel"),
        (BLOCK.format("def kernel(): return 1"), "arity"),
        (BLOCK.format("def kernel(x, y): return x"), "arity"),
        (BLOCK.format("def kernel(x, *, block): return x"), "arity"),
        ("def kernel(x): return x\n", "evolve_block"),
        (BLOCK.format("def kernel(x): return x") * 2, "evolve_block"),
        ("# EVOLVE-BLOCK-END\ndef kernel(x): return x\n# EVOLVE-BLOCK-START\n", "evolve_block"),
        ("#" * (300 << 10), "too_large"),
    ],
    ids=lambda value: value if len(value) < 20 else "",
)
def test_a_broken_contract_has_its_code(source, expected):
    assert reason(source) == expected


@pytest.mark.parametrize(
    "kernel",
    [
        "def kernel(x, y=None): return x",
        "def kernel(*arrays): return arrays[0]",
        "kernel = lambda x: x",
        "kernel = jax.jit(f)",
        "if True:\n    def kernel(x): return x",
        "try:\n    kernel = f\nexcept NameError:\n    kernel = None",
    ],
)
def test_kernels_bound_in_other_ways_are_left_to_the_tracer(kernel):
    assert reason(BLOCK.format(kernel)) is None


def test_a_syntax_error_shows_line_and_caret():
    found = check_contract("def kernel(x)\n    return x\n", TASK, 1 << 20)
    assert isinstance(found, Rejection)
    assert found.message.startswith("line 1: ")
    assert "def kernel(x)" in found.message
    assert "^" in found.message.splitlines()[-1]


def test_arity_names_the_inputs():
    found = check_contract(RELU, ADD, 1 << 20)
    assert isinstance(found, Rejection)
    assert "kernel(x, y)" in found.message


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("import os", "forbidden_import"),
        ("import numpy.ctypeslib", "forbidden_import"),
        ("from jax._src import core", "forbidden_import"),
        ("from jax.experimental import io_callback", "forbidden_import"),
        ("from . import seeds", "forbidden_import"),
        ("from numpy import *", "forbidden_import"),
        ("eval('1')", "forbidden_name"),
        ("f = open", "forbidden_name"),
        ("__builtins__['exec']", "forbidden_name"),
        ("typing.sys.modules", "forbidden_name"),
        ("().__class__.__base__.__subclasses__()", "forbidden_name"),
        ("getattr(jax, 'con' + 'fig')", "forbidden_name"),
        ("getattr(jax, '_src')", "forbidden_name"),
        ("jax.pure_callback(f, x)", "forbidden_name"),
        ("jax.config.update('jax_enable_x64', True)", "forbidden_name"),
        ("np.memmap('x')", "forbidden_name"),
        ("jnp.allclose = lambda *a: True", "forbidden_state"),
        ("del np.sum", "forbidden_state"),
        ("def f():\n    global CACHE\n    CACHE = 1", "forbidden_state"),
    ],
)
def test_source_analysis_finds(line, expected):
    tree = ast.parse(f"import typing\nimport jax\nimport jax.numpy as jnp\nimport numpy as np\n{line}\n")
    result, refusal = analyse_source(tree)
    assert refusal is not None
    assert refusal.reason == expected
    assert not result.passed
    assert result.value is not None
    assert result.value >= 1


@pytest.mark.parametrize(
    "line",
    [
        "# time.time() and eval(open('x')) in a comment",
        "'exec(open(__file__))'",
        "total = jnp.zeros((8, 8))",
        "x.at[0].set(1)",
        "self.config = 1",
        "settings.config.update(1)",
        "jax.nn.softmax(x, axis=-1)",
        "import functools, math, itertools, operator, dataclasses",
    ],
)
def test_source_analysis_leaves_honest_code_alone(line):
    _, refusal = analyse_source(ast.parse(f"import jax\nimport jax.numpy as jnp\n{line}\n"))
    assert refusal is None
