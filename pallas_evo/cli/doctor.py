"""`pallas_evo doctor`: what this machine can do, and what it cannot and why."""

from __future__ import annotations

import json
import os
import platform
import sys
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from typing import Annotated, Any

import typer

from pallas_evo.errors import UsageError

PACKAGES = ("pallas-evo", "jax", "jaxlib", "numpy", "triton", "shinka-evolve", "sqlalchemy", "landlock", "pyseccomp")
CUDA_PLUGINS = ("jax-cuda13-plugin", "jax-cuda12-plugin")


def doctor(
    measure: Annotated[bool, typer.Option("--measure", help="Measure the GPU's copy bandwidth, too.")] = False,
    ray: Annotated[
        str | None, typer.Option("--ray", metavar="ADDRESS", help="Examine a Ray cluster, too: auto, or its HOST:PORT.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object on stdout in place of the lines.")] = False,
) -> None:
    """Say what this machine can do: GPU, jail, versions, timers, and which commands will run.

    Example: pallas_evo doctor
    """
    cluster = None if ray is None else examine_ray(ray)
    found = examine()
    if cluster is not None:
        found["ray"] = cluster
    if measure:
        found["bandwidth"] = bandwidth(found)
    if as_json:
        sys.stdout.write(json.dumps(found) + "\n")
        return
    for name, said in lines(found):
        sys.stdout.write(f"{name:>9}  {said}\n")


def examine() -> dict[str, Any]:
    """What `doctor --json` prints."""
    from pallas_evo.artefact.at_hand import architecture_at_hand
    from pallas_evo.jail import LEVELS, level, probe
    from pallas_evo.running import driver_version, gpu_present
    from pallas_evo.running.sanitizer import find_sanitizer

    probes = {name: probe(name) for name in LEVELS if name != "none"}
    gpu = {
        "present": gpu_present(),
        "driver": driver_version(),
        "jax_plugin": _first_installed(CUDA_PLUGINS),
        "architecture": architecture_at_hand(),
    }
    found: dict[str, Any] = {
        "machine": platform.machine(),
        "kernel": platform.release(),
        "cores": os.cpu_count(),
        "cores_usable": len(os.sched_getaffinity(0)),
        "memory_gb": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9, 1),
        "python": platform.python_version(),
        "versions": {name: _version(name) for name in (*PACKAGES, *CUDA_PLUGINS)},
        "landlock_abi": _landlock_abi(),
        "jail": {
            "level": level(),
            "why": "; ".join(f"{name}: {one.why}" for name, one in probes.items() if not one.works),
            "levels": {name: one.works for name, one in probes.items()},
        },
        "gpu": gpu,
        "timers": ["cupti", "wall"] if gpu["present"] and gpu["jax_plugin"] else [],
        "ptx": find_spec("triton") is not None,
        "sanitizer": find_sanitizer() is not None,
    }
    found["abilities"] = abilities(found)
    return found


def examine_ray(address: str) -> dict[str, Any]:
    """A cluster's nodes, and the actors of the services that judge there.

    Raises:
        UsageError: Ray is not installed, or no cluster can be joined at the address.
    """
    from pallas_evo.pool.ray_cluster import Cluster

    cluster = Cluster(address)
    try:
        return cluster.describe()
    finally:
        cluster.close()


def ray_lines(found: dict[str, Any]) -> list[tuple[str, str]]:
    """The same for people."""
    gpus, cpus = found["gpus"], found["cpus"]
    said = [
        (
            "ray",
            f"version {found['version']} at {found['address']}, {len(found['nodes'])} nodes, "
            f"{gpus['free']:g} of {gpus['total']:g} GPUs and {cpus['free']:g} of {cpus['total']:g} cores free",
        )
    ]
    said += [
        ("node", f"{node['name']}: {node['gpus']} GPUs ({node['accelerator'] or 'no type'}), {node['cpus']} cores")
        for node in found["nodes"]
    ]
    for actor in found["actors"]:
        about = actor["about"]
        if about is None:
            said.append(("actor", f"{actor['name']}: starting, or it does not answer"))
            continue
        pool = about["pool"]
        load = "" if about["gpu_percent"] is None else f", GPU at {about['gpu_percent']} %"
        said.append(
            (
                "actor",
                f"{actor['name']} on {about['node']}, {about['device'] or 'its cores'}: {pool['busy']} of "
                f"{len(pool['judges'])} judges busy{load}, {pool['judged']} judged, {pool['failures']} failures",
            )
        )
    return said


def bandwidth(found: dict[str, Any]) -> dict[str, Any]:
    """The GPU's copy bandwidth in GB/s, measured, and its datasheet's.

    Raises:
        UsageError: there is no GPU here that JAX can use.
        DeviceUnavailable: it is busy, or CUPTI is not there.
    """
    if not (found["gpu"]["present"] and found["gpu"]["jax_plugin"]):
        raise UsageError("--measure needs an NVIDIA GPU that JAX can use, and there is none here.")
    from pallas_evo.config import Config
    from pallas_evo.devices import find_device
    from pallas_evo.evaluation import copy_bandwidth

    taken = copy_bandwidth(Config())
    known = find_device(taken.device)
    return {
        "device": taken.device,
        "measured_gb_s": taken.gb_s,
        "datasheet_gb_s": known.bandwidth_gb_s if known else None,
        "timer": taken.timer,
    }


def abilities(found: dict[str, Any]) -> list[dict[str, Any]]:
    """What will run on a machine that was found so: `what`, whether it `works`, and `why` not (else empty)."""
    jailed = found["jail"]["level"] != "none"
    gpu = found["gpu"]
    no_jail = "" if jailed else f"nothing here confines a candidate ({found['jail']['why']}); see --allow-unjailed"
    if not gpu["present"]:
        no_gpu = "there is no NVIDIA GPU here"
    elif not gpu["jax_plugin"]:
        no_gpu = f"JAX has no CUDA plugin: pip install {CUDA_PLUGINS[0]} or {CUDA_PLUGINS[1]} of JAX's version"
    else:
        no_gpu = ""
    no_triton = "" if found["ptx"] else "triton is not installed: pip install 'pallas-evo[ptx]'"
    no_shinka = "" if found["versions"]["shinka-evolve"] else "shinka-evolve is not installed"
    reasons = {
        "judge candidates in the executor (evaluate --target cpu)": no_jail,
        "judge and time candidates on a GPU (evaluate --target cuda)": no_jail or no_gpu,
        "registers, spills and shared memory by Triton and ptxas": no_triton,
        "evolve": no_jail or no_shinka,
    }
    return [{"what": what, "works": not why, "why": why} for what, why in reasons.items()]


def lines(found: dict[str, Any]) -> list[tuple[str, str]]:
    """The same for people: a name and a line, in order."""
    versions = ", ".join(f"{name} {is_at}" for name, is_at in found["versions"].items() if is_at)
    jail, gpu = found["jail"], found["gpu"]
    abi = f"; Landlock ABI {found['landlock_abi']}" if found["landlock_abi"] else "; no Landlock"
    cores = f"{found['cores']} cores" + (
        "" if found["cores_usable"] == found["cores"] else f", {found['cores_usable']} of them for us"
    )
    kind = gpu["architecture"] or "of an architecture that we do not know"
    device = f"present, {kind}, driver {gpu['driver']}, {gpu['jax_plugin'] or 'no JAX plugin'}"
    said = [
        ("machine", f"{found['machine']}, {cores}, {found['memory_gb']} GB, Linux {found['kernel']}"),
        ("versions", f"Python {found['python']}, {versions}"),
        ("jail", jail["level"] + abi + (f"; {jail['why']}" if jail["why"] else "")),
        ("gpu", device if gpu["present"] else "none"),
        ("timers", ", ".join(found["timers"]) or "none: a correct candidate scores 1.0, marked untimed"),
        (
            "elites",
            "judged again" + (", once under compute-sanitizer" if found["sanitizer"] else "; no compute-sanitizer"),
        ),
    ]
    if band := found.get("bandwidth"):
        sheet = f" of the datasheet's {band['datasheet_gb_s']:,.0f}" if band["datasheet_gb_s"] else ""
        said.append(("copies", f"{band['measured_gb_s']:,.0f} GB/s{sheet}"))
    if "ray" in found:
        said += ray_lines(found["ray"])
    said += [("will run", one["what"]) for one in found["abilities"] if one["works"]]
    said += [("will not", f"{one['what']}: {one['why']}") for one in found["abilities"] if not one["works"]]
    return said


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def _first_installed(names: tuple[str, ...]) -> str | None:
    return next((name for name in names if _version(name)), None)


def _landlock_abi() -> int | None:
    """The kernel's Landlock version; None where it has none."""
    try:
        from landlock import landlock_abi_version

        found = landlock_abi_version()
    except (ImportError, OSError):
        return None
    return int(found) if found > 0 else None
