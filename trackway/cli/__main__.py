"""`python -m trackway.cli` is the program `trackway`."""

from __future__ import annotations

import sys

from trackway.cli import main

if __name__ == "__main__":
    sys.exit(main())
