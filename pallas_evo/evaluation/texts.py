"""What a candidate is on its way from source to machine code, as text for the archive: one size, up to four kinds.

    jaxpr               the tracer's word: text that the candidate's process sent, and may have made up
    stablehlo, triton_ir  what the validator printed itself
    ptx_sm_80           what the offline compiler made of that, one kind for each architecture

No verdict hangs on any of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pallas_evo.config import Config
from pallas_evo.errors import ConfigError
from pallas_evo.types import Artefact

KEEP = ("accepted", "all", "none")


def wanted(config: Config) -> bool:
    """Whether any texts are kept.

    Raises:
        ConfigError: `texts.keep` is none of the three.
    """
    if config.texts.keep not in KEEP:
        raise ConfigError(f"texts.keep: expected one of {', '.join(KEEP)}; got {config.texts.keep!r}.")
    return config.texts.keep != "none"


def text_size(labels: Sequence[str], timed_sizes: Sequence[str]) -> str:
    """The size whose texts are kept: medium where it is traced, else the first timed one, else the first."""
    return next((size for size in ("medium", *timed_sizes) if size in labels), labels[0])


def collect(
    config: Config,
    artefact: Artefact | None,
    jaxpr: str | None,
    ptx: Mapping[tuple[str, str], Sequence[str]],
    *,
    correct: bool,
) -> dict[str, str]:
    """The texts of one artefact, by kind; one that is over its limit is left out, since a cut program is none."""
    if artefact is None or not wanted(config) or (config.texts.keep == "accepted" and not correct):
        return {}
    found = {} if jaxpr is None else {"jaxpr": jaxpr}
    found["stablehlo"] = artefact.module
    found["triton_ir"] = "\n".join(
        f"// {kernel.name}: grid {kernel.grid}, num_warps {kernel.num_warps}, num_stages {kernel.num_stages}\n"
        f"{kernel.ttir.rstrip()}\n"
        for kernel in artefact.kernels
    )
    for (label, sm), texts in ptx.items():
        if label == artefact.workload.label:
            found[f"ptx_{sm}"] = "\n".join(texts)
    return {kind: text for kind, text in found.items() if len(text.encode("utf-8", "replace")) <= config.texts.bytes}
