"""Which files a child needs: the interpreter, its libraries, the installed packages, the child's own modules.

Never the whole of a prefix: an environment may live in the home folder or in a checkout, and the package's own seeds
and references lie beside the packages that a candidate needs.
"""

from __future__ import annotations

import functools
import os
import sys
import sysconfig
from dataclasses import dataclass
from pathlib import Path

PACKAGE = Path(__file__).resolve().parent.parent
VOCABULARY = ("types.py", "errors.py", "reasons.py", "config.py")
PACKAGES_FOLDERS = ("site-packages", "dist-packages")

# /proc only in part: the whole of it shows the parent's environment, keys and all.
SYSTEM_FILES = (
    "/proc/self",
    "/proc/cpuinfo",
    "/proc/meminfo",
    "/proc/stat",
    "/dev/urandom",
    "/sys/devices/system/cpu",
    "/etc/ld.so.cache",
    "/etc/localtime",
)


@dataclass(frozen=True)
class Interpreter:
    """How to start a bare interpreter, and what it may read once it is confined."""

    executable: str
    path: tuple[str, ...]  # folders of installed packages, in the order of this process's sys.path
    readable: tuple[str, ...]  # files, and folders with all that is in them
    listable: tuple[str, ...]
    roots: tuple[str, ...]  # the coarse folders that a mount namespace is made from


@functools.lru_cache(maxsize=1)
def interpreter() -> Interpreter:
    """The interpreter behind `sys.executable`, without the virtual environment, whose packages are on `path`."""
    packages = tuple(
        dict.fromkeys(
            os.path.realpath(entry) for entry in sys.path if os.path.basename(entry.rstrip("/")) in PACKAGES_FOLDERS
        )
    )
    stdlib = os.path.realpath(sysconfig.get_path("stdlib"))
    executable = os.path.realpath(sys.executable)
    readable = [executable, os.path.join(sys.prefix, "pyvenv.cfg")]
    for folder in (stdlib, *packages):
        readable += _entries(folder, without=(*PACKAGES_FOLDERS, "pallas_evo", "__pycache__"))
        readable.append(os.path.join(folder, "__pycache__"))
    multiarch = sysconfig.get_config_var("MULTIARCH") or ""
    libraries = [os.path.join(sys.base_prefix, "lib"), "/lib", "/usr/lib", "/lib64", "/usr/lib64", "/usr/local/lib"]
    for folder in dict.fromkeys(os.path.realpath(folder) for folder in libraries):
        readable += _shared_objects(folder)
        if multiarch and os.path.isdir(os.path.join(folder, multiarch)):
            readable.append(os.path.join(folder, multiarch))
    roots = ["/usr", "/lib", "/lib64", "/nix/store", executable, stdlib, *packages]
    roots += _shared_objects(os.path.join(sys.base_prefix, "lib"))
    if os.path.isdir("/nix/store"):
        readable.append("/nix/store")
    return Interpreter(
        executable=executable,
        path=packages,
        readable=tuple(dict.fromkeys(readable)) + SYSTEM_FILES,
        listable=(stdlib, *packages, str(PACKAGE)),
        roots=tuple(dict.fromkeys(root for root in roots if os.path.exists(root))),
    )


def of_module(module: str) -> tuple[str, ...]:
    """What a child that runs `module` needs of this package: the vocabulary, the jail, the module's own folder."""
    return (*(str(PACKAGE / name) for name in VOCABULARY), str(PACKAGE / "jail"), of_package(module.rpartition(".")[0]))


def of_package(name: str) -> str:
    """The folder of one of our packages: "pallas_evo.running" -> ".../pallas_evo/running"."""
    return str(PACKAGE.joinpath(*name.split(".")[1:]))


def _entries(folder: str, without: tuple[str, ...] = ()) -> list[str]:
    try:
        return sorted(entry.path for entry in os.scandir(folder) if entry.name not in without)
    except OSError:
        return []


def _shared_objects(folder: str) -> list[str]:
    return [entry for entry in _entries(folder) if ".so" in os.path.basename(entry) and not os.path.isdir(entry)]
