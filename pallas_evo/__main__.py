"""`python -m pallas_evo` is the command `pallas_evo`."""

import sys

from pallas_evo.cli.app import main

if __name__ == "__main__":
    sys.exit(main())
