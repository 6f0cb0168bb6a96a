"""The five filters, after robust-kbench and PallasBench, each relative to the reference.

The published filters hold absolute values against 0.01 and so refuse honest sparse or small outputs (one_hot,
softmax); these ask whether the candidate's outputs vary as the reference's do. Each looks at one thing only:

output_range     the interval that an output's values span
output_std       how much each element varies from one drawing of the inputs to the next
axes_variation   how much an output varies along each of its axes
input_impact     how much the output moves when one input is drawn again
source_analysis  what the source and the exported program say (AST and IR, not text)

`FILTERS` maps the names of the four that look at outputs to their functions; source analysis needs no output and is
called on its own.
"""

from collections.abc import Callable, Sequence

from pallas_evo.config import Filters
from pallas_evo.judging.filters import axes_variation, input_impact, output_range, output_std
from pallas_evo.judging.filters.source_analysis import analyse_artefact, analyse_source
from pallas_evo.judging.observations import Observation
from pallas_evo.types import FilterResult

FILTERS: dict[str, Callable[[Sequence[Observation], Filters], FilterResult]] = {
    "output_range": output_range.check,
    "output_std": output_std.check,
    "axes_variation": axes_variation.check,
    "input_impact": input_impact.check,
}

__all__ = ["FILTERS", "analyse_artefact", "analyse_source"]
