"""What D is given: one output per run, with the inputs that it was made from, and the references D made itself."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, kw_only=True)
class Observation:
    """One run of a candidate, and what it should have given.

    `label` is the workload's (`small`, `variant`, ...). `role` is `seed` (inputs by the task's law), `stress`,
    `timed`, or `impact`: input number `changed` was drawn again, all others are those of the first `seed` run of the
    same label. `reference` is float64, `yardstick` float32.
    """

    label: str
    role: str
    output: np.ndarray
    reference: np.ndarray
    yardstick: np.ndarray
    changed: int | None = None
