"""The run-time check of annotations under test: the first call of each function in each test.

To check every call takes as long as the rest of a test does, and to prepare the checks of all
functions as long as importing them.
"""

from collections.abc import Callable
from dataclasses import is_dataclass
from functools import wraps
from typing import Any

import jaxtyping
from beartype import BeartypeConf, beartype
from beartype.roar import BeartypeDecorHintPep673Exception

called: set[Callable[..., Any]] = set()
"""What this test has called."""

_jaxtyped = jaxtyping.jaxtyped
_beartype = beartype(conf=BeartypeConf(is_pep484_tower=True))  # an int is a float


def checked(function: Callable[..., Any]) -> Callable[..., Any]:
    """Check a function, but for one with ``Self``, which means nothing outside its class."""
    try:
        return _beartype(function)
    except BeartypeDecorHintPep673Exception:
        return function


def first_call_checked(part: Any) -> Any:
    """Return a function, or a dataclass with its constructor, whose first call is checked."""
    if isinstance(part, type):
        if is_dataclass(part) and "__init__" in vars(part):
            part.__init__ = first_call_checked(part.__init__)
        return part
    careful: list[Callable[..., Any]] = []

    @wraps(part)
    def call(*args: Any, **kwargs: Any) -> Any:
        if part in called or hasattr(call, "__no_type_check__"):
            return part(*args, **kwargs)
        called.add(part)
        if not careful:
            careful.append(_jaxtyped(part, typechecker=checked))
        return careful[0](*args, **kwargs)

    return call


def check_imports(*modules: str) -> None:
    """Check the functions of modules that are imported after this."""
    # the import hook decorates all it finds with `jaxtyping.jaxtyped`, whose place this takes
    jaxtyping.jaxtyped = lambda **_: first_call_checked
    jaxtyping.install_import_hook(modules, "typecheck.checked")
