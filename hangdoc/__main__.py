"""``python -m hangdoc``."""

from __future__ import annotations

import sys

from hangdoc.cli import main

if __name__ == "__main__":
    sys.exit(main())
