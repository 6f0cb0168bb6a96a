"""Buffers against a model that looks at one lane after the other; atomic updates of every kind."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from executor_programs import call, output
from hypothesis import given, settings
from hypothesis import strategies as st
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton as plgpu

from pallas_evo.running.executor.memory import Access, Buffer, Refused

SIZE = 6


def access(programs):
    return Access("access", "kernel", np.array(programs, np.int32), (4, 1, 1))


@given(
    offsets=st.lists(st.integers(-2, SIZE + 1), min_size=4, max_size=4),
    mask=st.none() | st.lists(st.booleans(), min_size=4, max_size=4),
    kind=st.sampled_from(["load", "store", "update"]),
)
def test_an_access_is_refused_exactly_when_a_lane_that_counts_is_outside(offsets, mask, kind):
    buffer = Buffer(np.arange(SIZE, dtype=np.int32), None, "input 0")
    lanes = np.array(offsets)[None]
    masks = None if mask is None else np.array(mask)[None]
    value = np.array([[7]], np.int32)
    outside = any(not 0 <= offset < SIZE for offset, counts in zip(offsets, mask or [True] * 4, strict=True) if counts)
    try:
        if kind == "load":
            made = buffer.load(access([0]), lanes, masks, np.dtype(np.int32))
            for offset, counts, element in zip(offsets, mask or [True] * 4, made[0], strict=True):
                assert not counts or element == offset
        elif kind == "store":
            buffer.store(access([0]), lanes, value, masks)
        else:
            buffer.update(access([0]), lanes, (value,), masks, np.add, at=np.add.at, reads=True)
        said = None
    except Refused as refused:
        said = refused.reason
    assert said == ("out_of_bounds" if outside else None)


steps = st.lists(
    st.tuples(
        st.sampled_from(["load", "store", "update"]),
        st.lists(st.integers(0, SIZE - 1), min_size=2, max_size=2),
        st.lists(st.integers(0, SIZE - 1), min_size=2, max_size=2),
        st.lists(st.booleans(), min_size=4, max_size=4),
    ),
    min_size=1,
    max_size=5,
)


@settings(max_examples=300)
@given(steps)
def test_a_race_is_found_exactly_when_two_programs_meet_and_one_writes(moves):
    """Two programs of two lanes each. Stores write the element's index, so that lanes of one program agree."""
    buffer = Buffer(np.arange(SIZE, dtype=np.int32), None, "output 0")
    buffer.mixed = True
    touched: dict[int, set[tuple[str, int]]] = {}
    races = False
    for kind, first, second, mask in moves:
        for lane, (offset, counts) in enumerate(zip([*first, *second], mask, strict=True)):
            if counts:
                touched.setdefault(offset, set()).add((kind, lane // 2))
        for seen in touched.values():
            for kind_a, a in seen:
                for kind_b, b in seen:
                    pair = {kind_a, kind_b}
                    races |= a != b and pair != {"load"} and pair != {"update"}
        offsets = np.array([first, second])
        masks = np.array(mask).reshape(2, 2)
        value = np.zeros_like(offsets, dtype=np.int32)
        try:
            if kind == "load":
                buffer.load(access([0, 1]), offsets, masks, np.dtype(np.int32))
            elif kind == "store":
                buffer.store(access([0, 1]), offsets, offsets.astype(np.int32), masks)
            else:
                buffer.update(access([0, 1]), offsets, (value,), masks, np.add, at=np.add.at, reads=True)
            said = None
        except Refused as refused:
            said = refused.reason
        assert said == ("race" if races else None)
        if races:
            return


@given(steps)
def test_a_read_is_refused_exactly_when_nothing_wrote_the_element(moves):
    buffer = Buffer.unwritten((SIZE,), np.dtype(np.int32), "output 0")
    written: set[int] = set()
    for kind, first, second, mask in moves:
        lanes = [offset for offset, counts in zip([*first, *second], mask, strict=True) if counts]
        reads = kind != "store"
        offsets = np.array([[*first, *second]])
        masks = np.array([mask])
        try:
            if kind == "load":
                buffer.load(access([0]), offsets, masks, np.dtype(np.int32))
            elif kind == "store":
                buffer.store(access([0]), offsets, offsets.astype(np.int32), masks)
            else:
                zero = np.zeros((1, 1), np.int32)
                buffer.update(access([0]), offsets, (zero,), masks, np.add, at=np.add.at, reads=True)
            said = None
        except Refused as refused:
            said = refused.reason
        unwritten = reads and not set(lanes) <= written
        assert said == ("unwritten" if unwritten else None)
        if unwritten:
            return
        written |= set(lanes) if not reads else set()
    _, defined = buffer.finish()
    assert written == set(range(SIZE) if defined is None else np.flatnonzero(defined))


KINDS = {
    "add": (plgpu.atomic_add, lambda old, new: old + new),
    "max": (plgpu.atomic_max, max),
    "min": (plgpu.atomic_min, min),
    "and": (plgpu.atomic_and, lambda old, new: old & new),
    "or": (plgpu.atomic_or, lambda old, new: old | new),
    "xor": (plgpu.atomic_xor, lambda old, new: old ^ new),
    "xchg": (plgpu.atomic_xchg, lambda old, new: new),
}


@pytest.mark.parametrize("wants_old", [False, True])
@pytest.mark.parametrize("kind", sorted(KINDS))
@pytest.mark.parametrize("dtype", ["int32", "uint32", "float32"])
def test_atomic_updates_are_done_one_after_the_other(kind, dtype, wants_old):
    if dtype == "float32" and kind in ("and", "or", "xor"):
        pytest.skip("no bitwise update of floats")
    update, function = KINDS[kind]
    rng = np.random.default_rng(4)
    values = rng.integers(0, 2**31, 16).astype(dtype)
    if dtype == "float32" and not wants_old:  # of a float, minimum and maximum are two updates, one for each sign
        values -= np.float32(2**30)
    start = rng.integers(0, 2**31, 4).astype(dtype)

    def body(start_ref, x_ref, total_ref, old_ref):
        i = pl.program_id(0)
        old = update(total_ref, (i % 4,), plgpu.load(x_ref.at[i]))
        plgpu.store(old_ref.at[i], old if wants_old else plgpu.load(x_ref.at[i]))

    def kernel(start, x):
        shapes = (jax.ShapeDtypeStruct((4,), dtype), jax.ShapeDtypeStruct((16,), dtype))
        totals, olds = pl.pallas_call(
            body,
            out_shape=shapes,
            grid=(16,),
            input_output_aliases={0: 0},
            compiler_params=plgpu.CompilerParams(),
        )(start, x)
        return jnp.concatenate([totals, olds])

    totals, olds = start.copy(), values.copy()
    with np.errstate(over="ignore"):
        for i, value in enumerate(values):
            if wants_old:
                olds[i] = totals[i % 4]
            totals[i % 4] = function(totals[i % 4], value)
    made = output(kernel, start, values)
    np.testing.assert_allclose(made.astype(np.float64), np.concatenate([totals, olds]).astype(np.float64), rtol=1e-6)


def test_booleans_are_loaded_and_stored():
    x = np.array([True, False, True, True])

    def body(x_ref, o_ref):
        at = jnp.arange(4)
        plgpu.store(o_ref.at[at], ~plgpu.load(x_ref.at[at]))

    assert np.array_equal(output(lambda x: call(body, x, shape=(4,), dtype=jnp.bool_), x), ~x)
