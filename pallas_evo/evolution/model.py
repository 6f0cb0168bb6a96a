"""A small model of a run's scores: Bayesian linear regression on what a kernel's block shows of its tuning.

Features are the logarithm of each constant, its square, and whether a structural move is there. Drawing the weights
from their posterior (Thompson sampling) explores where little is known. With equal scores, as on a machine without a
GPU, it says nothing, and the search is random.
"""

from __future__ import annotations

import math

import numpy as np

from pallas_evo.evolution.knobs import knobs_of
from pallas_evo.evolution.moves import tags_of

PRIOR_VARIANCE = 0.25
NOISE_VARIANCE = 0.01


class ScoreModel:
    """What has been seen of a run: the best known score of each block, and a draw of what others may score."""

    def __init__(self) -> None:
        self._scores: dict[str, float] = {}

    def learn(self, block: str, score: float) -> None:
        """Note a score; a block that comes again keeps the newest."""
        if math.isfinite(score):
            self._scores[block] = score

    @property
    def informed(self) -> bool:
        """Whether there are scores that differ."""
        return len(set(self._scores.values())) > 1

    @property
    def best(self) -> str | None:
        """The best block that was seen."""
        return max(self._scores, key=self._scores.__getitem__) if self._scores else None

    def draw(self, blocks: list[str], rng: np.random.Generator) -> np.ndarray:
        """One draw of the score of each block: (len(blocks),) float64, on a logarithmic scale."""
        seen = [_features(block) for block in self._scores]
        asked = [_features(block) for block in blocks]
        names = sorted({name for features in (*seen, *asked) for name in features})
        known = _matrix(seen, names)
        targets = np.log(np.maximum(np.array(list(self._scores.values()), float), 0.05))
        centre = targets.mean() if len(targets) else 0.0
        offset = known.mean(axis=0) if len(known) else np.zeros(len(names))
        known = known - offset
        precision = known.T @ known / NOISE_VARIANCE + np.eye(len(names)) / PRIOR_VARIANCE
        mean = np.linalg.solve(precision, known.T @ (targets - centre) / NOISE_VARIANCE)
        root = np.linalg.cholesky(precision)
        weights = mean + np.linalg.solve(root.T, rng.standard_normal(len(names)))
        return np.asarray(centre + (_matrix(asked, names) - offset) @ weights)


def _features(block: str) -> dict[str, float]:
    features: dict[str, float] = {tag: 1.0 for tag in tags_of(block)}
    for name, value in knobs_of(block).items():
        scaled = math.log2(max(value, 1)) / 4
        features[name], features[f"{name}^2"] = scaled, scaled * scaled
    return features


def _matrix(rows: list[dict[str, float]], names: list[str]) -> np.ndarray:
    return np.array([[row.get(name, 0.0) for name in names] for row in rows], float).reshape(len(rows), len(names))
