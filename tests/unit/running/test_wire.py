"""Frames of arrays: a round trip, and bytes that are no frame."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pallas_evo.running import wire


def test_round_trip():
    arrays = [np.arange(6, dtype=np.int32).reshape(2, 3), np.zeros((0, 4), np.float32), np.float64(1.5).reshape(())]
    header, back = wire.unpack(wire.pack({"op": "run"}, arrays))
    assert header == {"op": "run"}
    for one, other in zip(arrays, back, strict=True):
        assert one.dtype == other.dtype
        assert np.array_equal(one, other)


@given(st.binary(max_size=200))
def test_garbage_is_refused(garbage):
    with pytest.raises(wire.BadFrame):
        wire.unpack(garbage)


@pytest.mark.parametrize(
    "described",
    ['[{"shape":[9],"dtype":"float32"}]', '[{"shape":[-1],"dtype":"float32"}]', '[{"shape":[1],"dtype":"object"}]',
     '[{"shape":"x","dtype":"float32"}]', "[1]", "1", '[{"shape":[4294967296,4294967296,4294967296],"dtype":"bool"}]'],
)  # fmt: skip
def test_a_header_that_lies_is_refused(described):
    text = ('{"arrays":' + described + "}").encode()
    with pytest.raises(wire.BadFrame):
        wire.unpack(len(text).to_bytes(4, "big") + text + b"\0" * 8)


def test_bytes_after_the_last_array_are_refused():
    with pytest.raises(wire.BadFrame, match="after the last"):
        wire.unpack(wire.pack({}, [np.zeros(2, np.float32)]) + b"x")
