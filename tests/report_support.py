"""A small model with prototypes."""

from functools import cache
from typing import Any

import graphlog
from downstream_support import CHAINS

SMALL: dict[str, Any] = {"epochs": 2, "batch_size": 16, "encoder": {"dim": 16, "layers": 2}}
SMALL["objective.centers"] = 8


@cache
def pretrained(recipe: str = "default") -> graphlog.Encoder:
    """Return a model of the chains; prototypes of ``released`` stand behind a projection head."""
    return graphlog.pretrain(CHAINS, recipe=recipe, schema="molecule", **SMALL)
