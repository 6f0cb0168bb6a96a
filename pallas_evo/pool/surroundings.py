"""The environment of a judge's process: what it needs of ours, and no key.

ShinkaEvolve hands its whole environment on to what it starts, API keys too.
"""

from __future__ import annotations

import os
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
"""The folder that holds this package."""

_KEPT = (
    "PATH", "HOME", "USER", "LANG", "TZ", "TMPDIR", "LD_LIBRARY_PATH", "VIRTUAL_ENV", "PYTHONDONTWRITEBYTECODE",
    "NPROC", "PJRT_NPROC",  # how many threads JAX's CPU backend starts
)  # fmt: skip
_KEPT_PREFIXES = ("LC_", "CUDA_", "NVIDIA_", "JAX_", "XLA_", "TF_CPP_", "OMP_", "OPENBLAS_", "MKL_", "PALLAS_EVO_")


def judge_environment(root: str = str(ROOT)) -> dict[str, str]:
    """The environment for a judge that imports this package from `root`."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if name in _KEPT or (name.startswith(_KEPT_PREFIXES) and not name.upper().endswith(("KEY", "TOKEN", "SECRET")))
    }
    # Packages may be found by the caller's PYTHONPATH alone; a relative entry would mean another folder there.
    given = [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if os.path.isabs(path)]
    return {**kept, "PYTHONPATH": os.pathsep.join([root, *given]), "PYTHONUNBUFFERED": "1"}
