"""Loops and branches in which programs take different ways, and the cutting of the grid into chunks."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from executor_programs import call, lower, output
from hypothesis import given, settings
from hypothesis import strategies as st
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton as plgpu

from pallas_evo.running.executor import Executed, execute
from pallas_evo.types import ArraySpec


def test_loop_bounds_that_differ_between_programs():
    def body(n_ref, o_ref):
        i = pl.program_id(0)
        total = lax.fori_loop(plgpu.load(n_ref.at[0, i]), plgpu.load(n_ref.at[1, i]), lambda k, t: t + k, 0)
        plgpu.store(o_ref.at[i], total)

    bounds = np.array([[0, 3, 5, 9], [4, 3, 11, 2]], np.int32)
    done = output(lambda n: call(body, n, shape=(4,), dtype=jnp.int32, grid=(4,)), bounds)
    assert done.tolist() == [sum(range(low, high)) for low, high in bounds.T]


def test_a_while_loop_that_ends_at_different_times():
    def body(n_ref, o_ref):
        i = pl.program_id(0)

        def collatz(state):
            n, steps = state
            return jnp.where(n % 2 == 0, n // 2, 3 * n + 1), steps + 1

        _, steps = lax.while_loop(lambda state: state[0] != 1, collatz, (plgpu.load(n_ref.at[i]), jnp.int32(0)))
        plgpu.store(o_ref.at[i], steps)

    starts = np.array([1, 2, 3, 6, 7, 27, 97, 1], np.int32)

    def steps(n):
        return 0 if n == 1 else 1 + steps(n // 2 if n % 2 == 0 else 3 * n + 1)

    done = output(lambda n: call(body, n, shape=(8,), dtype=jnp.int32, grid=(8,)), starts)
    assert done.tolist() == [steps(int(n)) for n in starts]


def test_branches_that_differ_with_stores_in_both():
    def body(x_ref, o_ref):
        i = pl.program_id(0)
        at = i * 16 + jnp.arange(16)
        x = plgpu.load(x_ref.at[at])

        def even(v):
            plgpu.store(o_ref.at[at], v * 2)
            return v + 1

        def odd(v):
            plgpu.store(o_ref.at[at], -v)
            return v - 1

        made = lax.cond(i % 2 == 0, even, odd, x)
        plgpu.store(o_ref.at[64 + at], made)

    x = np.arange(64, dtype=np.float32)
    even = np.arange(64) // 16 % 2 == 0
    expected = np.concatenate([np.where(even, 2 * x, -x), np.where(even, x + 1, x - 1)])
    assert np.array_equal(output(lambda x: call(body, x, shape=(128,), grid=(4,)), x), expected)


def test_a_switch_inside_a_loop_inside_a_branch():
    def body(x_ref, o_ref):
        i = pl.program_id(0)

        def step(k, v):
            return lax.switch((i + k) % 3, [lambda v: v + 1, lambda v: v * 2, lambda v: v - 5], v)

        start = plgpu.load(x_ref.at[i])
        made = lax.cond(i > 2, lambda v: lax.fori_loop(0, i, step, v), lambda v: v * 10, start)
        plgpu.store(o_ref.at[i], made)

    x = np.arange(8, dtype=np.int32) + 3

    def expected(i, v):
        if i <= 2:
            return v * 10
        for k in range(i):
            v = (v + 1, v * 2, v - 5)[(i + k) % 3]
        return v

    done = output(lambda x: call(body, x, shape=(8,), dtype=jnp.int32, grid=(8,)), x)
    assert done.tolist() == [expected(i, int(v)) for i, v in enumerate(x)]


def _causal_attention(q, k, v):
    """Loop bounds differ between programs; a maximum, a sum and an accumulator are carried."""

    def body(q_ref, k_ref, v_ref, o_ref):
        i = pl.program_id(0)
        rows = i * 16 + jnp.arange(16)
        q = plgpu.load(q_ref.at[rows, :])

        def step(j, carry):
            most, total, made = carry
            cols = j * 16 + jnp.arange(16)
            scores = jnp.dot(q, plgpu.load(k_ref.at[cols, :]).T, precision="highest")
            scores = jnp.where(rows[:, None] >= cols[None, :], scores, -1e30)
            new = jnp.maximum(most, scores.max(axis=1))
            weights = jnp.exp(scores - new[:, None])
            kept = jnp.exp(most - new)
            made = made * kept[:, None] + jnp.dot(weights, plgpu.load(v_ref.at[cols, :]), precision="highest")
            return new, total * kept + weights.sum(axis=1), made

        start = (jnp.full(16, -1e30), jnp.zeros(16), jnp.zeros((16, 16)))
        _, total, made = lax.fori_loop(0, i + 1, step, start)
        plgpu.store(o_ref.at[rows, :], made / total[:, None])

    return call(body, q, k, v, shape=q.shape, grid=(q.shape[0] // 16,))


def test_causal_attention_with_as_many_steps_as_needed():
    q, k, v = np.random.default_rng(1).standard_normal((3, 96, 16)).astype(np.float32)
    scores = np.where(np.tri(96, dtype=bool), q.astype(np.float64) @ k.T, -np.inf)
    weights = np.exp(scores - scores.max(axis=1, keepdims=True))
    expected = weights / weights.sum(axis=1, keepdims=True) @ v
    np.testing.assert_allclose(output(_causal_attention, q, k, v), expected, rtol=2e-5, atol=2e-6)


def test_chunks_of_the_grid_change_nothing():
    inputs = np.random.default_rng(2).standard_normal((3, 160, 16)).astype(np.float32)
    text = lower(_causal_attention, *inputs)
    runs = [
        execute(text, inputs, ArraySpec(shape=(160, 16), dtype="float32"), lane_elements=lanes)
        for lanes in (1, 256, 1000, 1 << 22)
    ]
    assert all(isinstance(done, Executed) for done in runs)
    assert all(np.array_equal(done.output, runs[0].output) for done in runs)
    assert len({done.counts for done in runs}) == 1


@settings(max_examples=15, deadline=None)
@given(
    grid=st.tuples(st.integers(1, 4), st.integers(1, 4), st.integers(1, 4)),
    lanes=st.sampled_from([1, 32, 100, 1 << 20]),
)
def test_program_ids_of_every_grid_and_chunking(grid, lanes):
    def body(o_ref):
        x, y, z = (pl.program_id(axis) for axis in range(3))
        plgpu.store(o_ref.at[x, y, z, jnp.arange(8)], x * 100 + y * 10 + z + jnp.zeros(8, jnp.int32))

    done = output(lambda: call(body, shape=(*grid, 8), dtype=jnp.int32, grid=grid), lane_elements=lanes)
    x, y, z = np.indices(grid)
    assert np.array_equal(done, np.repeat((x * 100 + y * 10 + z)[..., None], 8, axis=-1))


def test_a_lock_that_programs_wait_for_in_a_loop_does_not_hang():
    def body(lock_in, o_in, lock_ref, o_ref):
        lax.while_loop(
            lambda got: got != 0, lambda got: plgpu.atomic_cas(lock_ref, jnp.int32(0), jnp.int32(1)), jnp.int32(1)
        )
        plgpu.atomic_add(o_ref, (0,), pl.program_id(0))
        plgpu.atomic_xchg(lock_ref, (), 0)

    def kernel():
        shapes = (jax.ShapeDtypeStruct((), jnp.int32), jax.ShapeDtypeStruct((1,), jnp.int32))
        return pl.pallas_call(
            body,
            out_shape=shapes,
            grid=(5,),
            input_output_aliases={0: 0, 1: 1},
            compiler_params=plgpu.CompilerParams(),
        )(jnp.int32(0), jnp.zeros(1, jnp.int32))[1]

    assert output(kernel).tolist() == [10]
