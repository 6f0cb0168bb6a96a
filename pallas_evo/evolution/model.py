"""A small model of a run's scores: a Gaussian process over what a kernel's block shows of its tuning.

Features are the logarithm of each constant and whether a structural move is there. Its mean is a prior: what usually
is good on NVIDIA GPUs, in a few rules. Drawing from the posterior (Thompson sampling) explores where little is known.
"""

from __future__ import annotations

import math

import numpy as np

from pallas_evo.evolution.knobs import has_dot, knobs_of
from pallas_evo.evolution.moves import tags_of

DEVIATION = 0.35  # of the logarithm of the score, where nothing is known
NOISE = 0.03  # a median time's spread is up to 4 %
KNOB_OCTAVES = 2.0  # how far one constant's effect reaches
TAG_LENGTH = 1.2
REFUSED = -0.7  # below the worst correct score

_DOT_AIMS = {"BLOCK_M": 6.0, "BLOCK_N": 6.5, "BLOCK_K": 5.5, "NUM_WARPS": 2.3, "NUM_STAGES": 1.7}  # log2
_ONLINE_AIMS = {"BLOCK_M": 4.5, "BLOCK_N": 6.5, "NUM_WARPS": 2.0, "NUM_STAGES": 1.3}  # a dot inside a softmax
_OTHER_AIMS = {"NUM_WARPS": 2.0, "NUM_STAGES": 0.5, "UNROLL": 4.0}
_DOT_TAGS = {"k_major": 0.35, "unrolled": -0.1, "full_precision": -0.5, "backwards": -0.15, "several": -0.15}
_OTHER_TAGS = {"unrolled": 0.3, "backwards": -0.15, "several": -0.1, "rows_at_once": 0.03, "one_pass": 0.05}
_PER_OCTAVE = 0.05  # of the squared distance from an aim


class ScoreModel:
    """What has been seen of a run: the last known score of each block, and a draw of what others may score."""

    def __init__(self) -> None:
        self._scores: dict[str, float] = {}

    def learn(self, block: str, score: float) -> None:
        """Note a score, 0 for a program that was refused; a block that comes again keeps the newest."""
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
        seen = list(self._scores)
        points = [_features(block) for block in (*seen, *blocks)]
        names = sorted({name for features in points for name in features})
        table = np.array([[point.get(name, 0.0) for name in names] for point in points], float)
        table = table.reshape(len(points), len(names))
        distance = ((table[:, None, :] - table[None, :, :]) ** 2).sum(axis=2)
        covariance = DEVIATION**2 * np.exp(-0.5 * distance)
        means = np.array([prior(block) for block in (*seen, *blocks)])
        targets = self._targets() - means[: len(seen)]
        centre = targets.mean() if len(seen) else 0.0
        known, new = slice(0, len(seen)), slice(len(seen), len(points))
        mean, spread = means[new] + centre, covariance[new, new]
        if seen:
            inner = covariance[known, known] + NOISE**2 * np.eye(len(seen))
            weights = np.linalg.solve(inner, covariance[known, new])
            mean = mean + weights.T @ (targets - centre)
            spread = spread - covariance[known, new].T @ weights
        root = np.linalg.cholesky(spread + 1e-6 * np.eye(len(blocks)))
        return np.asarray(mean + root @ rng.standard_normal(len(blocks)))

    def _targets(self) -> np.ndarray:
        scores = np.array(list(self._scores.values()), float)
        least = scores[scores > 0].min() if (scores > 0).any() else 1.0
        return np.where(scores > 0, np.log(np.maximum(scores, 1e-3)), math.log(least) + REFUSED)


def prior(block: str) -> float:
    """What is usually good on NVIDIA GPUs, on the logarithmic scale of scores; a guess of ours, no measurement."""
    dot = has_dot(block)
    aims = _OTHER_AIMS if not dot else _ONLINE_AIMS if "jnp.exp" in block and "fori" in block else _DOT_AIMS
    known, told = _DOT_TAGS if dot else _OTHER_TAGS, 0.0
    for tag in tags_of(block):
        told += known.get(tag.split(":")[0], 0.0)
    for name, value in knobs_of(block).items():
        aim = aims.get(name)
        if aim is not None:
            told -= _PER_OCTAVE * (math.log2(max(value, 1)) - aim) ** 2
    return told


def _features(block: str) -> dict[str, float]:
    features = {tag: 1.0 / TAG_LENGTH for tag in tags_of(block)}
    for name, value in knobs_of(block).items():
        features[name] = math.log2(max(value, 1)) / KNOB_OCTAVES
    return features
