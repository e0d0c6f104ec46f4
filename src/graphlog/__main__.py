"""``python -m graphlog`` is the command."""

import sys

from graphlog.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
