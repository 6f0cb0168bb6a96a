"""What the executor must see and a GPU cannot: accesses out of bounds, elements never written, races."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest
from executor_programs import call, output, refusal, run
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton as plgpu

X = np.random.default_rng(0).standard_normal(500).astype(np.float32)


def tiled(body, *inputs, programs, size=500, **keywords):
    """A grid of programs over whole one-dimensional arrays."""
    return call(body, *inputs, shape=(size,), grid=(programs,), **keywords)


def copy_tile(x_ref, o_ref, *, masked=True, offset=0, block=64):
    at = pl.program_id(0) * block + jnp.arange(block)
    inside = at < x_ref.shape[0] if masked else None
    plgpu.store(o_ref.at[at], plgpu.load(x_ref.at[at + offset], mask=inside), mask=inside)


def test_a_masked_overhang_is_honest():
    assert (output(lambda x: tiled(copy_tile, x, programs=8), X) == X).all()


def test_an_unmasked_load_past_the_end_names_kernel_program_and_element():
    def kernel(x):
        def late(x_ref, o_ref):
            at = pl.program_id(0) * 64 + jnp.arange(64)
            plgpu.store(o_ref.at[at], plgpu.load(x_ref.at[at]), mask=at < 500)

        return tiled(late, x, programs=8)

    said = refusal(kernel, X)
    assert said.reason == "out_of_bounds"
    for part in ("late", "load", "program (7, 0, 0)", "element 500 of input 0", "500 elements", "mask"):
        assert part in said.message


def test_an_unmasked_store_past_the_end():
    def kernel(x):
        def late(x_ref, o_ref):
            at = pl.program_id(0) * 64 + jnp.arange(64)
            plgpu.store(o_ref.at[at], plgpu.load(x_ref.at[at], mask=at < 500))

        return tiled(late, x, programs=8)

    said = refusal(kernel, X)
    assert (said.reason, "output 0" in said.message, "store" in said.message) == ("out_of_bounds", True, True)


def test_a_negative_index():
    said = refusal(lambda x: tiled(lambda *refs: copy_tile(*refs, offset=-1), x, programs=8), X)
    assert said.reason == "out_of_bounds"
    assert "element -1 of input 0" in said.message
    assert "program (0, 0, 0)" in said.message


def test_an_index_far_out_in_one_lane_of_a_masked_load():
    def body(x_ref, o_ref):
        at = jnp.arange(512)
        picked = jnp.where(at == 77, 10_000, at)
        plgpu.store(o_ref.at[at], plgpu.load(x_ref.at[picked], mask=at < 500, other=0.0), mask=at < 500)

    said = refusal(lambda x: tiled(body, x, programs=1), X)
    assert (said.reason, "element 10000" in said.message) == ("out_of_bounds", True)


def test_a_kernel_that_never_stores():
    said = refusal(lambda x: tiled(lambda x_ref, o_ref: None, x, programs=8), X)
    assert (said.reason, "500 of the output's 500" in said.message) == ("unwritten", True)


def test_half_a_grid_leaves_the_rest_unwritten():
    said = refusal(lambda x: tiled(copy_tile, x, programs=4), X)
    assert (said.reason, "244 of" in said.message, "(256,)" in said.message) == ("unwritten", True, True)


def test_stale_memory_is_not_read_as_an_answer():
    def reads_its_output(x):
        def body(x_ref, o_ref):
            at = jnp.arange(512)
            plgpu.store(o_ref.at[at], plgpu.load(o_ref.at[at], mask=at < 500) + 0.0, mask=at < 500)

        return tiled(body, x, programs=1)

    said = refusal(reads_its_output, X)
    assert (said.reason, "output 0, which nothing has written" in said.message) == ("unwritten", True)


def test_a_second_kernel_that_reads_what_the_first_left_out():
    def kernel(x):
        half = tiled(copy_tile, x, programs=4)
        return tiled(copy_tile, half, programs=8)

    said = refusal(kernel, X)
    assert (said.reason, "input 0, which nothing" in said.message) == ("unwritten", True)


def test_unwritten_padding_that_is_cut_away_is_honest():
    def kernel(x):
        wide = call(lambda x_ref, o_ref: copy_tile(x_ref, o_ref), x, shape=(512,), grid=(8,))
        return wide[:500]

    assert (output(kernel, X) == X).all()


def test_unwritten_elements_travel_through_glue_to_the_output():
    def kernel(x):
        half = tiled(copy_tile, x, programs=4)
        return jnp.pad(half[::-1].reshape(2, 250).T, ((0, 0), (1, 0)), constant_values=3.0)

    said = refusal(kernel, X)
    assert (said.reason, "244 of the output's 750" in said.message) == ("unwritten", True)


def test_two_programs_that_store_one_element_race():
    def body(x_ref, o_ref):
        o_ref[...] = x_ref[...]  # every program stores all of it, and even the same values

    said = refusal(lambda x: call(body, x, shape=(64,), grid=(4,)), X[:64])
    assert said.reason == "race"
    assert "output 0" in said.message
    assert "program (" in said.message


def test_a_race_is_seen_across_chunks_of_the_grid():
    def body(x_ref, o_ref):
        at = pl.program_id(0) % 4 * 64 + jnp.arange(64)
        plgpu.store(o_ref.at[at], plgpu.load(x_ref.at[at]))

    said = run(lambda x: call(body, x, shape=(256,), grid=(8,)), X[:256], lane_elements=64)
    assert said.reason == "race"
    assert "program (4, 0, 0)" in said.message
    assert "program (0, 0, 0)" in said.message


@pytest.mark.parametrize("lane_elements", [64, 1 << 20])
def test_reading_what_a_neighbour_writes_in_the_same_grid_races(lane_elements):
    def body(zero_ref, x_ref, o_ref):
        at = pl.program_id(0) * 64 + jnp.arange(64)
        left = plgpu.load(o_ref.at[(at + 64) % 256])
        plgpu.store(o_ref.at[at], plgpu.load(x_ref.at[at]) + left)

    def kernel(x):
        zeros = jnp.zeros(256, jnp.float32)
        return call(body, zeros, x, shape=(256,), grid=(4,), input_output_aliases={0: 0})

    said = run(kernel, X[:256], lane_elements=lane_elements)
    assert said.reason == "race"


def test_one_store_with_two_values_for_one_element_races():
    def body(x_ref, o_ref):
        at = jnp.arange(64)
        plgpu.store(o_ref.at[at // 2], plgpu.load(x_ref.at[at]))

    said = refusal(lambda x: call(body, x, shape=(32,)), X[:64])
    assert (said.reason, "twice with different values" in said.message) == ("race", True)


def test_one_store_of_one_value_by_many_lanes_is_honest():
    def body(x_ref, o_ref):
        at = jnp.arange(64)
        plgpu.store(o_ref.at[at // 2], plgpu.load(x_ref.at[at // 2]))

    assert (output(lambda x: call(body, x, shape=(32,)), X[:64]) == X[:32]).all()


def test_a_program_that_adds_to_its_own_elements_is_honest():
    def body(zero_ref, x_ref, o_ref):
        at = pl.program_id(0) * 64 + jnp.arange(64)

        def step(turn, carry):
            plgpu.store(o_ref.at[at], plgpu.load(o_ref.at[at]) + plgpu.load(x_ref.at[at]))
            return carry

        lax.fori_loop(0, 3, step, 0)

    def kernel(x):
        return call(body, jnp.zeros(256, jnp.float32), x, shape=(256,), grid=(4,), input_output_aliases={0: 0})

    x = X[:256]
    assert np.array_equal(output(kernel, x), x + x + x)


def test_a_plain_store_beside_atomic_adds_races():
    def body(zero_ref, x_ref, o_ref):
        at = jnp.arange(64)
        plgpu.atomic_add(o_ref, (at,), plgpu.load(x_ref.at[at]))

        @pl.when(pl.program_id(0) == 3)
        def _():
            plgpu.store(o_ref.at[at], plgpu.load(x_ref.at[at]))

    def kernel(x):
        return call(body, jnp.zeros(64, jnp.float32), x, shape=(64,), grid=(4,), input_output_aliases={0: 0})

    assert refusal(kernel, X[:64]).reason == "race"


def test_atomic_adds_to_what_nothing_wrote():
    def body(x_ref, o_ref):
        at = jnp.arange(64)
        plgpu.atomic_add(o_ref, (at,), plgpu.load(x_ref.at[at]))

    assert refusal(lambda x: call(body, x, shape=(64,), grid=(4,)), X[:64]).reason == "unwritten"


def test_an_access_of_a_program_that_does_not_take_part_is_no_fault():
    def body(x_ref, o_ref):
        program = pl.program_id(0)

        @pl.when(program < 2)
        def _():
            at = program * 64 + jnp.arange(64)
            plgpu.store(o_ref.at[at], plgpu.load(x_ref.at[at]))

    x = X[:128]
    assert np.array_equal(output(lambda x: call(body, x, shape=(128,), grid=(5,)), x), x)


def test_inputs_are_never_changed():
    def body(x_ref, o_ref):
        at = jnp.arange(64)
        plgpu.atomic_add(o_ref, (at,), plgpu.load(x_ref.at[at]))

    def kernel(x):
        return call(body, x, shape=(64,), input_output_aliases={0: 0})

    x = X[:64].copy()
    assert np.array_equal(output(kernel, x), X[:64] * 2)
    assert np.array_equal(x, X[:64])
