"""The entry point of `python -m sixfold`, which runs the command `sixfold`."""

from __future__ import annotations

import sys

from sixfold.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
