"""A small model with prototypes."""

from functools import cache

import graphlog
from downstream_support import CHAINS

SMALL = {"epochs": 2, "batch_size": 16, "encoder": {"dim": 16, "layers": 2}, "objective.centers": 8}


@cache
def pretrained(recipe: str = "default") -> graphlog.Encoder:
    """Return a model of the chains; prototypes of ``released`` stand behind a projection head."""
    return graphlog.pretrain(CHAINS, recipe=recipe, schema="molecule", **SMALL)
