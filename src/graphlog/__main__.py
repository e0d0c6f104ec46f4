"""``python -m graphlog`` is the command."""

import sys

from graphlog.cli.main import main

if __name__ == "__main__":
    code = main()
    # Ctrl-C inside an import, where dataclasses run `exec`, leaves a mark in the interpreter that
    # would end it by the signal, not with this code; the next `exec` clears the mark
    exec("")  # nosec B102
    sys.exit(code)
