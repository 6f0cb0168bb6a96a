"""Device peaks: the names that JAX gives, and the floor."""

from __future__ import annotations

import pytest

from pallas_evo.devices import _TABLE, binds, find_device, floor_us
from pallas_evo.types import Floor


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        ("NVIDIA A100 80GB PCIe", "A100 PCIe"),
        ("NVIDIA A100-SXM4-80GB", "A100 SXM"),
        ("NVIDIA H100 80GB HBM3", "H100 SXM"),
        ("NVIDIA H100 PCIe", "H100 PCIe"),
        ("NVIDIA H200", "H200"),
        ("NVIDIA L4", "L4"),
        ("NVIDIA GeForce RTX 4090", "RTX 4090"),
        ("NVIDIA B200", "B200"),
    ],
)
def test_names(kind, name):
    found = find_device(kind)
    assert found is not None
    assert found.name == name


@pytest.mark.parametrize("kind", ["NVIDIA L40S", "cpu", "", "NVIDIA GB200"])
def test_an_unknown_device_has_no_floor(kind):
    assert find_device(kind) is None


def test_every_device_names_an_architecture_that_we_compile_for():
    from pallas_evo.artefact.architectures import ARCHITECTURES

    assert {device.sm for _, device in _TABLE} <= set(ARCHITECTURES)


def test_floor_is_the_larger_of_memory_and_compute():
    device = find_device("NVIDIA H200")
    assert device is not None
    reads = Floor(bytes_read=64 << 20, flops=0)
    assert floor_us(reads, device) == pytest.approx((64 << 20) / 4800e9 * 1e6)
    assert binds(reads, device) == "memory"
    product = Floor(bytes_read=8 << 20, flops=2 * 1024**3)
    assert floor_us(product, device) == pytest.approx(2 * 1024**3 / 494.7e12 * 1e6)
    assert binds(product, device) == "compute"
