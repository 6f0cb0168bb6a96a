"""Shared memory: what is put in comes out, and an entry that does not fit is refused."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from pallas_evo.running.arena import Arena

ARRAYS = st.lists(
    npst.arrays(
        st.sampled_from([np.float32, np.int32, np.bool_]), npst.array_shapes(min_dims=0, max_dims=3, min_side=0)
    ),
    max_size=4,
)


@given(first=ARRAYS, second=ARRAYS)
def test_what_is_written_is_read_by_another_mapping(first, second):
    ours = Arena()
    theirs = Arena(ours.descriptor)
    for arrays in (first, second):  # the second over the first
        for one, other in zip(arrays, theirs.read(ours.write(arrays)), strict=True):
            assert one.dtype == other.dtype
            np.testing.assert_array_equal(one, other)
    ours.close()


def test_what_was_read_does_not_change_with_the_memory():
    arena = Arena()
    (kept,) = arena.read(arena.write([np.ones(4, np.float32)]))
    arena.write([np.zeros(4, np.float32)])
    np.testing.assert_array_equal(kept, 1)
    arena.close()


@pytest.mark.parametrize(
    "entry",
    [
        {"at": 0, "shape": [1 << 40], "dtype": "float32"},
        {"at": -4, "shape": [1], "dtype": "float32"},
        {"at": 0, "shape": [-1], "dtype": "float32"},
        {"at": 0, "shape": [1], "dtype": "object"},
        {"at": 1 << 40, "shape": [1], "dtype": "int32"},
    ],
)
def test_an_entry_that_does_not_fit_is_refused(entry):
    arena = Arena()
    arena.write([np.ones(4, np.float32)])
    with pytest.raises(ValueError, match="at"):
        arena.read([entry])
    arena.close()
