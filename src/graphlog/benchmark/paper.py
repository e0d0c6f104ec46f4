"""What the paper itself reports: Tables 1 to 4 as printed, and the little that its text says of Figure 3.

Source: Xu, Wang, Ni, Guo & Tang, "Self-supervised Graph-level Representation Learning with Local and Global
Structure", ICML 2021 (arXiv 2106.04113). Test ROC-AUC in per cent, mean and standard deviation of five runs; how the
deviation is normalised and which epoch is scored is not said. EdgePred, AttrMasking and ContextPred are there quoted
from Hu et al. (2020).
"""

from collections.abc import Mapping

Printed = tuple[float, float | None]
"""Mean and standard deviation in per cent; None where none is printed."""

SOURCE = "Xu et al., ICML 2021 (arXiv 2106.04113)"
RUNS = 5

TABLE_1_DATASETS = ("bbbp", "tox21", "toxcast", "sider", "clintox", "muv", "hiv", "bace")
TABLE_1: Mapping[str, tuple[Printed, ...]] = {
    "untrained": (
        (65.8, 4.5),
        (74.0, 0.8),
        (63.4, 0.6),
        (57.3, 1.6),
        (58.0, 4.4),
        (71.8, 2.5),
        (75.3, 1.9),
        (70.1, 5.4),
    ),
    "edgepred": (
        (67.3, 2.4),
        (76.0, 0.6),
        (64.1, 0.6),
        (60.4, 0.7),
        (64.1, 3.7),
        (74.1, 2.1),
        (76.3, 1.0),
        (79.9, 0.9),
    ),
    "infograph": (
        (68.2, 0.7),
        (75.5, 0.6),
        (63.1, 0.3),
        (59.4, 1.0),
        (70.5, 1.8),
        (75.6, 1.2),
        (77.6, 0.4),
        (78.9, 1.1),
    ),
    "attrmasking": (
        (64.3, 2.8),
        (76.7, 0.4),
        (64.2, 0.5),
        (61.0, 0.7),
        (71.8, 4.1),
        (74.7, 1.4),
        (77.2, 1.1),
        (79.3, 1.6),
    ),
    "contextpred": (
        (68.0, 2.0),
        (75.7, 0.7),
        (63.9, 0.6),
        (60.9, 0.6),
        (65.9, 3.8),
        (75.8, 1.7),
        (77.3, 1.0),
        (79.6, 1.2),
    ),
    "graphpartition": (
        (70.3, 0.7),
        (75.2, 0.4),
        (63.2, 0.3),
        (61.0, 0.8),
        (64.2, 0.5),
        (75.4, 1.7),
        (77.1, 0.7),
        (79.6, 1.8),
    ),
    "graphcl": (
        (69.5, 0.5),
        (75.4, 0.9),
        (63.8, 0.4),
        (60.8, 0.7),
        (70.1, 1.9),
        (74.5, 1.3),
        (77.6, 0.9),
        (78.2, 1.2),
    ),
    "graphlog": (
        (72.5, 0.8),
        (75.7, 0.5),
        (63.5, 0.7),
        (61.2, 1.1),
        (76.7, 3.3),
        (76.0, 1.1),
        (77.8, 0.8),
        (83.5, 1.2),
    ),
}
"""Molecular property prediction, GIN; one value a data set in the order above."""
TABLE_1_AVERAGE: Mapping[str, float] = {
    "untrained": 67.0,
    "edgepred": 70.3,
    "infograph": 71.1,
    "attrmasking": 71.1,
    "contextpred": 70.9,
    "graphpartition": 70.8,
    "graphcl": 71.3,
    "graphlog": 73.4,
}
"""The printed averages over all eight; GraphCL's eight numbers as printed average 71.24."""

TABLE_2: Mapping[str, Printed] = {
    "untrained": (64.8, 1.0),
    "edgepred": (70.5, 0.7),
    "infograph": (70.7, 0.5),
    "attrmasking": (70.5, 0.5),
    "contextpred": (69.9, 0.3),
    "graphpartition": (71.0, 0.2),
    "graphcl": (71.2, 0.6),
    "graphlog": (72.9, 0.7),
}
"""Biological function prediction (40 functions, eight species), GIN."""

TABLE_3_BACKBONES = ("gcn", "graphsage", "gat", "gin")
TABLE_3: Mapping[str, tuple[Printed, ...]] = {
    "untrained": ((63.2, 1.0), (65.7, 1.2), (68.2, 1.1), (64.8, 1.0)),
    "edgepred": ((68.0, 0.9), (67.8, 0.7), (67.9, 1.3), (70.5, 0.7)),
    "attrmasking": ((68.3, 0.8), (69.2, 0.6), (67.3, 0.8), (70.5, 0.5)),
    "contextpred": ((67.6, 0.3), (69.6, 0.6), (66.9, 1.2), (69.9, 0.3)),
    "graphcl": ((69.1, 0.9), (70.2, 0.4), (68.4, 1.2), (71.2, 0.6)),
    "graphlog": ((71.2, 0.6), (70.8, 0.8), (69.5, 1.0), (72.9, 0.7)),
}
"""Four architectures, on biology; one value a backbone in the order above."""

TABLE_4: Mapping[str, Printed] = {
    "subgraph": (70.1, 0.6),
    "graph": (71.0, 0.3),
    "global": (71.5, 0.5),
    "subgraph+graph": (71.3, 0.7),
    "subgraph+global": (71.9, 0.8),
    "graph+global": (72.2, 0.4),
    "subgraph+graph+global": (72.9, 0.7),
}
"""GraphLoG with some of its three losses, on biology, in the paper's order."""

FIGURE_3_KNOWN: Mapping[str, Mapping[int, Printed]] = {
    "depth": {3: (72.9, 0.7)},
    "batch_size": {512: (72.9, 0.7)},
}
"""The one point of each curve that is printed as a number (the settings of Table 2); the curves themselves are not."""
FIGURE_3_GOOD_FROM: Mapping[str, int] = {"depth": 3, "batch_size": 256}
"""From where on the text says that the score stays high: depths of 3 and more, batches of 256 and more."""


def paper_score(
    table: Mapping[str, tuple[Printed, ...]], columns: tuple[str, ...], row: str, column: str
) -> Printed | None:
    """Return one printed value; None where the paper has none.

    Example:
        >>> paper_score(TABLE_1, TABLE_1_DATASETS, "graphlog", "bace")
        (83.5, 1.2)
    """
    if row not in table or column not in columns:
        return None
    return table[row][columns.index(column)]
