"""The compared methods by name: what is pre-trained, and the rows that need no pre-training."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from graphlog.errors import unknown_name
from graphlog.objectives import OBJECTIVES

UNTRAINED, FOREST, LINEAR = "untrained", "ecfp-rf", "ecfp-lr"
COMPARED = (
    UNTRAINED,
    "edgepred",
    "infograph",
    "attrmasking",
    "contextpred",
    "graphpartition",
    "graphcl",
    "graphlog",
)
"""The rows of the paper's Tables 1 and 2, in its order."""
FINGERPRINTS = (FOREST, LINEAR)
_RECIPES = ("paper", "released", "plus")
LOSSES = ("subgraph", "graph", "global")
ABLATED = (
    "subgraph",
    "graph",
    "global",
    "subgraph+graph",
    "subgraph+global",
    "graph+global",
    "subgraph+graph+global",
)
"""The rows of Table 4, named by the losses that stay."""
CONFIGURATIONS = ("subgraph", "subgraph+graph", "subgraph+graph+global")
"""The panels (a) to (c) of Figure 4."""


@dataclass(frozen=True, slots=True)
class Method:
    """One row of a table."""

    name: str
    """As typed by the user."""
    kind: Literal["pretrained", "untrained", "fingerprint"]
    """Whether an encoder is pre-trained, left as drawn, or there is none."""
    objective: str = ""
    """The pretext task of a pre-trained one."""
    recipe: str = "default"
    """Whose switches of the objective it takes; encoder, schema and training are those of the scale."""

    def recipe_for(self, domain: str) -> str:
        """Return the recipe for graphs of ``domain``: the sources have switches of their own for biology."""
        recipes = OBJECTIVES[self.objective].RECIPES
        return (
            "biology"
            if domain == "protein" and self.recipe == "default" and "biology" in recipes
            else self.recipe
        )


def method_named(name: str) -> Method:
    """Return a method: a row without pre-training, ``graphlog-<recipe>``, or any objective of ``OBJECTIVES``.

    Raises:
        ConfigError: If there is none of that name; the nearest is suggested.

    Example:
        >>> method_named("graphlog-paper").recipe
        'paper'
    """
    table = known_methods()
    if name not in table:
        raise unknown_name("method", name, table)
    return table[name]


def known_methods() -> Mapping[str, Method]:
    """Return every method by name; an objective added to ``OBJECTIVES`` is among them at once."""
    rows = [Method(UNTRAINED, "untrained"), *(Method(name, "fingerprint") for name in FINGERPRINTS)]
    rows += [Method(name, "pretrained", name) for name in OBJECTIVES]
    rows += [Method(f"graphlog-{recipe}", "pretrained", "graphlog", recipe) for recipe in _RECIPES]
    return {row.name: row for row in rows}


def methods_named(names: Iterable[str]) -> tuple[Method, ...]:
    """Return methods in the order given, each once."""
    return tuple(method_named(name) for name in dict.fromkeys(names))


def weights_of(losses: str) -> dict[str, float]:
    """Return the switches that leave GraphLoG with the losses named, and without the term that the paper does not have.

    Example:
        >>> weights_of("graph+global")
        {'objective.attribute_weight': 0.0, 'objective.subgraph_weight': 0.0}
    """
    left_out = [loss for loss in LOSSES if loss not in losses.split("+")]
    return {
        "objective.attribute_weight": 0.0,
        **{f"objective.{loss}_weight": 0.0 for loss in left_out},
    }
