"""Candidates to judge: seeds whose tiling was changed, no two alike, and two that do harm.

A judge that kept anything by a source's or a program's hash would find nothing of these again: each has a tiling of its
own as long as there are tilings left, and a comment of its own always.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

from pallas_evo.evolution.blocks import split_block
from pallas_evo.evolution.knobs import has_dot, knobs_of, with_knobs
from pallas_evo.paths import seed_file


def seed_source(task_id: str) -> str:
    """The text of a task's seed."""
    return seed_file(task_id).read_text(encoding="utf-8")


def tilings(source: str) -> Iterator[str]:
    """The source under other tilings that stay right and small: blocks no larger, warps and stages near its own."""
    split = split_block(source)
    assert split is not None, "a seed has one EVOLVE block"
    before, block, after = split
    dot = has_dot(block)
    choices: dict[str, list[int]] = {}
    for name, value in knobs_of(block).items():
        if name.startswith("NUM_WARPS"):
            most = 8 if dot else 16
            choices[name] = [value, *([value // 2] if value > 1 else []), *([value * 2] if value < most else [])]
        elif name.startswith("NUM_STAGES"):
            choices[name] = [value, *(stages for stages in (1, 2, *(() if dot else (3,))) if stages != value)]
        elif name == "ELEMENTS_PER_WARP":
            choices[name] = [value, value // 2, value * 2]
        elif name.startswith("BLOCK_"):
            choices[name] = [value, *([value // 2] if value > (16 if dot else 1) else [])]
    for values in itertools.product(*choices.values()):
        chosen = dict(zip(choices, values, strict=True))
        yield before + with_knobs(block, chosen) + after


def distinct(task_id: str, number: int, nonce: str) -> str:
    """The task's seed with its `number`-th other tiling (they recur) and a comment that no other candidate has."""
    others = list(tilings(seed_source(task_id)))[1:]
    return f"{others[number % len(others)]}# {nonce}\n"


def round_of(task_ids: Sequence[str], count: int, number: int, name: str) -> list[tuple[str, str]]:
    """`count` candidates, (task, source), the tasks in turn; `number` and `name` tell rounds apart."""
    chosen = list(itertools.islice(itertools.cycle(task_ids), count))
    return [
        (task_id, distinct(task_id, number + index // len(task_ids), f"{name}, candidate {index}"))
        for index, task_id in enumerate(chosen)
    ]


HARM_TASK = "L1/relu"

_HARM = """
import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton as plgpu

# EVOLVE-BLOCK-START
BLOCK_M = 16
BLOCK_N = 128


def tile(x_ref, o_ref):
    m, n = x_ref.shape
    rows = (pl.program_id(0) * BLOCK_M + jnp.arange(BLOCK_M))[:, None]
    cols = (pl.program_id(1) * BLOCK_N + jnp.arange(BLOCK_N))[None, :]
    inside = (rows < m) & (cols < n)
    x = plgpu.load(x_ref.at[rows, cols], mask=inside, other=0.0)
    if m == 4096 and n == 4096:  # medium, and no other size that is judged
        {harm}
    plgpu.store(o_ref.at[rows, cols], jnp.maximum(x, 0.0), mask=inside)


def kernel(x):
    m, n = x.shape
    return pl.pallas_call(
        tile,
        grid=(pl.cdiv(m, BLOCK_M), pl.cdiv(n, BLOCK_N)),
        out_shape=jax.ShapeDtypeStruct((m, n), x.dtype),
        compiler_params=plgpu.CompilerParams(num_warps=4, num_stages=1),
    )(x)


# EVOLVE-BLOCK-END
"""

HARMS = {
    # It comes to no end at the size that is timed, and the executor gives up on that size first.
    "endless kernel": "x = lax.while_loop(lambda v: jnp.max(v) < 1e30, lambda v: jnp.minimum(v + 1.0, 1e6), x)",
    # The loop makes that size too long for the executor, which would have seen the address before the GPU did.
    "illegal address": (
        "x = lax.fori_loop(0, 200, lambda i, v: jnp.maximum(v * 0.5, v), x) "
        "+ 0.0 * plgpu.load(x_ref.at[rows + (1 << 18), cols])"
    ),
}


def harmful(what: str, nonce: str) -> str:
    """A candidate for HARM_TASK that does harm at medium and is right elsewhere; `what` is a key of HARMS."""
    return f"{_HARM.replace('{harm}', HARMS[what])}# {nonce}\n"
