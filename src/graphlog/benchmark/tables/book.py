"""All scores of one scale, looked up by what they are rather than by the suite that wrote them."""

from collections.abc import Iterable, Sequence

from graphlog.benchmark.tables.cells import FEATURE_BASELINES, Cell, Variant
from graphlog.benchmark.tables.names import RULES, in_order
from graphlog.benchmark.tables.stats import Series

_LIKE_RULE = {
    "last": "fixed-C",
    "best-valid": "validated-C",
    "fixed-C": "last",
    "validated-C": "best-valid",
}
"""Rules that correspond: without or with a look at the validation fold."""


class ScoreBook:
    """The scored cells of one scale.

    Args:
        cells: Cells of any stage; those without a data set are left aside.
    """

    def __init__(self, cells: Iterable[Cell]) -> None:
        self.cells = [
            c for c in cells if c.stage in ("finetune", "probe") and c.dataset is not None
        ]

    def rules(self, stage: str) -> list[str]:
        """Return the selection rules that cells of a stage are scored by."""
        return in_order(
            {
                r
                for c in self.cells
                if c.stage == stage and c.method not in FEATURE_BASELINES
                for r in c.scores
            },
            RULES,
        )

    def domains(self) -> list[str]:
        """Return the domains of the cells."""
        return sorted({c.domain for c in self.cells})

    def chosen(
        self,
        stage: str,
        method: str,
        backbone: str | None,
        variant: Variant,
        dataset: str | None = None,
    ) -> list[Cell]:
        """Return the cells of a row, or of its one data set; those of a feature baseline whatever the stage, its own first."""
        if method in FEATURE_BASELINES:
            found = [c for c in self.cells if c.method == method]
            own = {c.dataset for c in found if c.stage == stage}
            found = [c for c in found if c.stage == stage or c.dataset not in own]
        else:
            found = [
                c
                for c in self.cells
                if (c.stage, c.method, c.backbone, c.variant) == (stage, method, backbone, variant)
            ]
        return [c for c in found if dataset in (None, c.dataset)]

    def series(self, cells: Sequence[Cell], rule: str, fold: str = "test") -> Series:
        """Return the score of each seed; a seed whose cell has no such rule or fold is absent."""
        scores = {c.seed: c.score(_rule_of(c, rule), fold) for c in cells}
        return {
            seed: score
            for seed, score in sorted(scores.items(), key=lambda item: item[0] or 0)
            if score is not None
        }


def _rule_of(cell: Cell, rule: str) -> str:
    """Return the rule of a cell that answers to ``rule``: for a feature baseline the like one, or the only one it has."""
    if rule in cell.scores or cell.method not in FEATURE_BASELINES or not cell.scores:
        return rule
    like = _LIKE_RULE.get(rule, rule)
    return like if like in cell.scores else next(iter(sorted(cell.scores)))
