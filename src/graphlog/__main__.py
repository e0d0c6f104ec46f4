"""``python -m graphlog`` is the command."""

import sys

from graphlog.cli import main

if __name__ == "__main__":
    sys.exit(main())
