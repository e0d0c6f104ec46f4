"""How much memory a new process takes."""

import subprocess
import sys

_PROGRAM = """
import resource, sys
{prepare}
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
{code}
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024)
"""


def megabytes_for(prepare: str, code: str, *words: object) -> int:
    """Run ``prepare`` and then ``code`` with these words; return what ``code`` takes."""
    program = _PROGRAM.format(prepare=prepare, code=code)
    command = [sys.executable, "-c", program, *map(str, words)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return int(done.stdout)
