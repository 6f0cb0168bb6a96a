"""What runs below compute-sanitizer: one validated program, once, on inputs that lie in a folder.

    python -m pallas_evo.running.sanitizer_child FOLDER TOKEN SECONDS

Ends itself after SECONDS, whoever has gone before; writes TOKEN into FOLDER/ran when the program has run.
"""

from __future__ import annotations

import json
import signal
import sys
from pathlib import Path

import jax
import numpy as np

from pallas_evo.running.device_child import callable_of


def main(folder: Path, token: str, seconds: int) -> None:
    """Run it."""
    signal.alarm(seconds)
    spec = json.loads((folder / "spec.json").read_text())
    inputs = [np.load(folder / f"input{index}.npy", allow_pickle=False) for index in range(spec["inputs"])]
    types = [jax.ShapeDtypeStruct(array.shape, array.dtype) for array in inputs]
    call = callable_of(spec["module"], types, jax.ShapeDtypeStruct(tuple(spec["output"][0]), spec["output"][1]))
    jax.block_until_ready(jax.jit(call)(*inputs))
    (folder / "ran").write_text(token)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]))
