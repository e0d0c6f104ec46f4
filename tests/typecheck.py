"""The run-time checker of annotations under test.

Beartype, but for what it cannot read on a lone method.
"""

from collections.abc import Callable
from typing import Any

from beartype import BeartypeConf, beartype
from beartype.roar import BeartypeDecorHintPep673Exception

_beartype = beartype(
    conf=BeartypeConf(is_pep484_tower=True)
)  # an int is a float, as static checkers have it


def checked(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return ``function`` with its annotations checked; one that mentions ``Self`` stays as it is.

    The import hook decorates methods one by one, and ``Self`` means nothing outside its class.
    """
    try:
        return _beartype(function)
    except BeartypeDecorHintPep673Exception:
        return function
