"""D, the judge: trusted code that draws inputs, makes references, and compares.

check_contract                   the file itself
filters.analyse_source           its syntax tree
filters.FILTERS                  the four filters that look at outputs
numerics.compare                 one output against its reference
combined_score, describe         fitness and feedback
"""

from pallas_evo.judging.contract import check_contract
from pallas_evo.judging.feedback import describe
from pallas_evo.judging.fitness import combined_score
from pallas_evo.judging.observations import Observation

__all__ = ["Observation", "check_contract", "combined_score", "describe"]
