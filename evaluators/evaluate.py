"""What ShinkaEvolve runs for each candidate: `--program_path P --results_dir R --task ID`; see --help.

It works from wherever it is copied, as long as its Python has pallas_evo, and is the same as
`python -m pallas_evo.evolution.callback`. It imports neither shinka nor jax: the judge is a process of its own.

SPDX-License-Identifier: Apache-2.0
"""

import sys
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parent.parent
if (CHECKOUT / "pallas_evo" / "evolution").is_dir():  # a checkout that was not installed
    sys.path.insert(0, str(CHECKOUT))

from pallas_evo.evolution.callback import main  # noqa: E402

if __name__ == "__main__":
    sys.exit(main())
