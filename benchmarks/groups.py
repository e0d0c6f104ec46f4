"""Measure how well embeddings and prototypes retrieve and group molecules.

    python benchmarks/groups.py runs/stores/near hiv tox21 muv toxcast mix
    python benchmarks/groups.py prototypes runs/near with-0=runs/with-0 without-0=runs/without-0
    python benchmarks/groups.py full-size runs/z2m released-0=RELEASED graphlog-0=GRAPHLOG
    python benchmarks/groups.py proteins runs/worm-go40 with-0=runs/worm-with-0    # and all seeds
    python benchmarks/groups.py report

Retrieval (hiv, tox21, muv): up to 20 active molecules of each assay are queries. For each query,
the other molecules with a label are ranked by similarity. Groups (tox21, toxcast, mix): the
adjusted mutual information between a partition and scaffolds, assays or the source collection of
molecules. Partitions are the roots and leaves of the shipped tree, and K-means clusterings of the
same sizes for each representation. Data sets are random samples of :data:`SAMPLE` molecules, for
retrieval with all active molecules added, and are read from $GRAPHLOG_MIRROR. Untrained networks
are calibrated on the given graph store, which must be the one that the models were pre-trained on.

``prototypes`` measures retrieval and groups for other models of that store, ``NAME-SEED=PATH``, by
the embeddings of the last layer and of all layers, and by the trees that they were trained with.
``full-size`` does the same for the models in results/full-size. ``proteins`` measures models of
ego-networks: groups are compared with GO terms, and linear models of the last layer are scored.

Rows are added to results/groups.csv.gz; data sets that have rows are not computed again. ``report``
prints the tables of docs/results/groups.md and docs/two-losses/, except that of molecules chosen to
be labeled, which an earlier version of this script wrote.
"""

import os
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from rdkit.ML.Scoring import Scoring
from sklearn.cluster import KMeans
from sklearn.metrics import adjusted_mutual_info_score

import graphlog
from graphlog.data.graphs import FeatureSchema
from graphlog.data.split import group_numbers
from graphlog.data.store import GraphStore, open_store
from graphlog.datasets import find_spec
from graphlog.domains import domain_of
from graphlog.domains.molecule import morgan_fingerprints, scaffolds
from graphlog.domains.molecule.descriptors import target_values
from graphlog.downstream.linear import standardize
from graphlog.downstream.tasks import open_labeled
from graphlog.report.hierarchy import Hierarchy

MODEL = "graphlog-mol"
SAMPLE, QUERIES, SEEDS = 3_000, 20, range(5)
RETRIEVED, GROUPED = ("hiv", "tox21", "muv"), ("tox21", "toxcast", "mix")
PROTOTYPES, FULL_SIZE = "prototypes: ", "full size: "
RESULTS = Path(__file__).parent / "results" / "groups.csv.gz"
UNTRAINED, ECFP4, DESCRIPTORS, STATISTICS = "untrained", "ECFP4", "descriptors", "statistics"
WORM = "worm-go40"
FUSIONS = ((MODEL, ECFP4), (MODEL, ECFP4, DESCRIPTORS), (ECFP4, DESCRIPTORS))
TRUTHS = {"ChEMBL or ZINC": "source", "assays it is active in": "assays"}
TRUTHS |= {"assay family of most hits": "assays"}
SETS = {"hiv": "HIV", "muv": "MUV", "tox21": "Tox21", "toxcast": "ToxCast"}
Matrices = dict[str, np.ndarray]
"""Representations by name, each with one row per molecule."""
Trees = dict[str, tuple[np.ndarray, tuple[int, ...]]]
"""By model: path of each molecule in the prototypes, and number of prototypes of each layer."""


def sample(name: str, actives: bool, schema: FeatureSchema) -> tuple[pd.DataFrame, GraphStore]:
    """Return a random sample of a data set; ``actives`` adds all molecules active in any assay."""
    path = "chem/pretrain/druglike_mix.csv.gz" if name == "mix" else find_spec(name).path
    table = pd.read_csv(Path(os.environ["GRAPHLOG_MIRROR"]) / path)
    drawn = np.random.default_rng(0).random(len(table)) < SAMPLE / len(table)
    if actives:
        drawn |= (table.drop(columns="smiles") == 1).any(axis=1).to_numpy()
    table = table[drawn]
    graphs = graphlog.read_molecules(table["smiles"].tolist(), schema=schema)
    return table.iloc[graphs.rows].reset_index(drop=True), graphs


def with_untrained(models: dict[str, Any], store: GraphStore) -> dict[str, Any]:
    """Add untrained networks with the settings of the first model, calibrated on the store.

    Raises:
        SystemExit: If a model was not pre-trained on this store.
    """
    if any(model.info["data_digest"] != store.digest for model in models.values()):
        raise SystemExit("the store is not what all of the models were pre-trained on.")
    first, separator = next(iter(models.values())), " " if MODEL in models else "-"
    return models | {
        f"{UNTRAINED}{separator}{seed}": graphlog.random_encoder(
            first.config, first.schema, layer="jk", seed=seed, graphs=store
        )
        for seed in SEEDS
    }


def represent(
    models: dict[str, Any], graphs: GraphStore, store: GraphStore
) -> tuple[Matrices, Trees]:
    """Return the representations of graphs, and their paths in the trees of the models.

    The shipped model is compared with untrained networks, fingerprints and descriptors. Other
    models, which must have the same settings, are compared with untrained networks, by the last
    layer and by all layers, and for ego-networks also with graph statistics.
    """
    is_shipped, rows = MODEL in models, np.arange(len(graphs))
    layers = {"": None} if is_shipped else {", last": "last", ", jk": "jk"}
    values, trees = Matrices(), Trees()
    for name, model in with_untrained(models, store).items():
        for suffix, layer in layers.items():
            values[name + suffix] = standardize(model.embed_store(graphs, layer), rows)
        if (hierarchy := Hierarchy.of(model)) is not None:
            trees[name] = (hierarchy.assign(graphs).paths, hierarchy.forest.sizes)
    if is_shipped:
        values[ECFP4] = morgan_fingerprints(graphs.texts()).astype(np.float32)
        values[DESCRIPTORS] = standardize(target_values(graphs.texts()), rows)
    if graphs.schema.domain == "protein":
        statistics = domain_of(graphs.schema).feature_set(STATISTICS, graphs).values
        values[STATISTICS] = standardize(statistics, rows)
    return values, trees


def similarities(name: str, values: np.ndarray, query: int) -> np.ndarray:
    """Return the similarities of all rows to row ``query``: Tanimoto for ECFP4, else cosine."""
    dots = values @ values[query]
    if name == ECFP4:
        counts = values.sum(axis=1)
        return dots / np.maximum(counts + counts[query] - dots, 1)
    return dots / np.maximum(np.linalg.norm(values, axis=1) * np.linalg.norm(values[query]), 1e-12)


def retrieve(table: pd.DataFrame, values: Matrices) -> Iterator[dict[str, Any]]:
    """Yield the metrics of :func:`early` for each assay and model, as means over the queries."""
    for assay in table.columns.drop("smiles"):
        known = np.flatnonzero(table[assay].notna())
        active = table[assay].to_numpy()[known] == 1
        queries = np.random.default_rng(0).permutation(np.flatnonzero(active))[:QUERIES]
        inside = {name: matrix[known] for name, matrix in values.items()}
        scores: dict[str, list[tuple[float, float, float]]] = {}
        for query in queries:
            ranks = {
                name: similarities(name, matrix, query).argsort().argsort() / len(known)
                for name, matrix in inside.items()
            }
            fusions = [f for f in FUSIONS if ranks.keys() >= set(f)]
            ranks |= {" + ".join(f): np.mean([ranks[n] for n in f], axis=0) for f in fusions}
            for name, rank in ranks.items():
                others = np.delete(np.arange(len(known)), query)
                order = others[np.argsort(-rank[others], kind="stable")]
                scores.setdefault(name, []).append(early(active[order]))
        for name, of_queries in scores.items():
            means = np.mean(of_queries, axis=0)
            for metric, value in zip(("EF 1 %", "BEDROC 20", "MRR"), means, strict=True):
                row = {"task": "retrieve", "of": assay, "model": name, "molecules": len(known)}
                yield {**row, "metric": metric, "value": value}


def early(is_active: np.ndarray) -> tuple[float, float, float]:
    """Return enrichment at 1 %, BEDROC 20 and the reciprocal rank of the first active molecule."""
    ranked = is_active[:, None].tolist()
    enrichment = Scoring.CalcEnrichment(ranked, 0, [0.01])[0]
    return enrichment, Scoring.CalcBEDROC(ranked, 0, 20.0), 1 / (1 + int(is_active.argmax()))


def profiles(dataset: str, table: pd.DataFrame) -> tuple[str, np.ndarray]:
    """Return the name and the codes of the known groups of a data set; -1 is unknown."""
    if dataset == "mix":
        return "ChEMBL or ZINC", table.source.astype("category").cat.codes.to_numpy()
    active = table.drop(columns="smiles") == 1
    if dataset == "tox21":
        return "assays it is active in", combinations(active.to_numpy())
    families = active.columns.str.split("_").str[0]
    rate = (
        active.T.groupby(families).sum().T / table.iloc[:, 1:].notna().T.groupby(families).sum().T
    )
    best = rate.fillna(0).to_numpy().argmax(axis=1)
    return "assay family of most hits", np.where(active.any(axis=1), best, -1)


def combinations(has: np.ndarray) -> np.ndarray:
    """Return a code of the combination of assays or GO terms of each row; -1 if it has none."""
    return np.where(has.any(axis=1), np.unique(has, axis=0, return_inverse=True)[1].ravel(), -1)


def probe(models: dict[str, Any], store: GraphStore) -> Iterator[dict[str, Any]]:
    """Yield test ROC-AUCs of linear models of the last layer, for two splits."""
    for split in ("random", "network"):
        data = open_labeled(WORM, store.schema, split=split)
        for name, model in with_untrained(models, store).items():
            value = graphlog.probe(model, data, layer="last", baselines=()).mean
            row = {"task": f"probe: {split}", "of": "GO terms", "model": name, "seed": 0}
            yield {**row, "molecules": len(store), "metric": "ROC-AUC", "value": value}


def group(
    truths: dict[str, np.ndarray], values: Matrices, trees: Trees
) -> Iterator[dict[str, Any]]:
    """Yield the agreement of partitions with the known groups ``truths``; code -1 is unknown.

    K-means makes as many groups as the tree of the same model has nodes, or else the first tree.
    """
    _, default_sizes = next(iter(trees.values()))
    for level, layer in (("roots", 0), ("leaves", -1)):
        partitions = [
            (f"tree of {model}", sizes[layer], 0, paths[:, layer])
            for model, (paths, sizes) in trees.items()
        ]
        for model, matrix in values.items():
            size = trees.get(model.partition(",")[0], (None, default_sizes))[1][layer]
            label = model.rpartition(" ")[0] if model.startswith(f"{UNTRAINED} ") else model
            for seed in [int(model[-1])] if label == UNTRAINED else SEEDS:
                fitted = KMeans(size, n_init=1, random_state=seed).fit_predict(matrix)
                partitions.append((f"K-means, {label}", size, seed, fitted))
        for truth, codes in truths.items():
            known = codes >= 0
            for model, size, seed, partition in partitions:
                value = adjusted_mutual_info_score(codes[known], partition[known])
                row = {"task": f"group: {level}", "of": truth, "model": model, "seed": seed}
                row |= {"molecules": int(known.sum()), "groups": size}
                yield {**row, "metric": "AMI", "value": value}


def comparison(tasks: pd.Series) -> pd.Series:
    """Return the comparison that each task belongs to, its prefix; the shipped model has none."""
    return tasks.str.extract(f"^({PROTOTYPES}|{FULL_SIZE})")[0].fillna("")


def measure(path: Path, datasets: list[str], models: dict[str, Any], prefix: str = "") -> None:
    """Measure the data sets that have no rows yet, and add their rows."""
    rows, store = pd.read_csv(RESULTS), open_store(path)
    for dataset in datasets:
        if dataset in set(rows["dataset"][comparison(rows["task"]) == prefix]):
            continue
        added: list[dict[str, Any]] = []
        if dataset in RETRIEVED:
            table, graphs = sample(dataset, True, store.schema)
            added += retrieve(table, represent(models, graphs, store)[0])
        if dataset in GROUPED:
            table, graphs = sample(dataset, False, store.schema)
            kinds = group_numbers(scaffolds.scaffolds(table["smiles"].tolist()))
            truths = dict([("scaffold", kinds), profiles(dataset, table)])
            added += group(truths, *represent(models, graphs, store))
        if dataset == WORM:
            truths = {"GO terms": combinations(store.labels == 1)}
            added += [*group(truths, *represent(models, store, store)), *probe(models, store)]
        new = pd.DataFrame(added).assign(dataset=dataset).round({"value": 5})
        rows = pd.concat([rows, new.assign(task=prefix + new["task"])])
        rows.to_csv(RESULTS, index=False)


def tables(rows: pd.DataFrame) -> str:
    """Return the tables of the docs, with means ± SD over networks and clusterings."""
    seed = rows["model"].str.extract(r"(?:untrained |-)(\d)")[0].astype(float)
    model = rows["model"].str.replace(r"(?<=untrained) \d|-\d", "", regex=True)
    rows = rows.assign(seed=seed.fillna(rows["seed"]).fillna(0), model=model)
    kind = comparison(rows["task"])
    is_shipped, is_other, is_full = kind == "", kind == PROTOTYPES, kind == FULL_SIZE
    rows["task"] = rows["task"].str.removeprefix(PROTOTYPES).str.removeprefix(FULL_SIZE)
    is_worm = rows["dataset"] == WORM
    lines = [
        *retrieval_and_groups(rows[is_shipped]),
        *retrieval_and_groups(rows[is_other & ~is_worm]),
        *mean_table(rows[is_worm], ["task", "of"], 100),
        *retrieval_and_groups(rows[is_full]),
    ]
    return "\n".join(lines)


def retrieval_and_groups(frame: pd.DataFrame) -> Iterator[str]:
    """Yield the lines of three tables: retrieval, and groups by the leaves and roots of trees."""
    yield from mean_table(frame[frame["task"] == "retrieve"], ["dataset", "metric"], 1)
    for level in ("leaves", "roots"):
        yield from mean_table(frame[frame["task"] == f"group: {level}"], ["dataset", "of"], 100)


def mean_table(frame: pd.DataFrame, columns: list[str], scale: float) -> Iterator[str]:
    """Yield the lines of a table with one row per model: mean ± SD over the seeds."""
    means = frame.groupby([*columns, "model", "seed"])["value"].mean() * scale
    summary = means.groupby([*columns, "model"]).agg(["mean", "std"])
    texts = summary["std"].map(" ± {:.2f}".format, na_action="ignore").fillna("")
    texts = (summary["mean"].map("{:.2f}".format) + texts).unstack("model").fillna("")
    yield f"| | {' | '.join(map(heading, texts.index))} |"
    yield "|---|" + "---:|" * len(texts)
    for model in frame["model"].unique():
        name = re.sub(r"\b(with(?:out)?)\b", r"\1 prototypes", model)
        name = name.replace("tree of with", "trained tree, with")
        yield f"| {name} | {' | '.join(texts[model])} |"
    yield ""


def heading(values: Sequence[str]) -> str:
    """Return the heading of a column, such as ``Tox21, scaffold`` or ``leaves: GO terms``."""
    first, second = values
    kind, _, detail = first.partition(": ")
    if kind == "probe":
        return f"linear model, {'random split' if detail == 'random' else 'communities held out'}"
    if kind == "group":
        return f"{detail}: {second}"
    return f"{SETS.get(first, first)}, {TRUTHS.get(second, second)}"


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["report"]:
            print(tables(pd.read_csv(RESULTS)))
        case ["prototypes" | "proteins" | "full-size" as kind, path, *named]:
            loaded = {n: graphlog.load(p) for n, _, p in (spec.partition("=") for spec in named)}
            datasets = [WORM] if kind == "proteins" else ["hiv", "tox21", "muv", "mix"]
            measure(Path(path), datasets, loaded, FULL_SIZE if kind == "full-size" else PROTOTYPES)
        case [path, *datasets] if {*datasets} <= {*RETRIEVED, *GROUPED}:
            measure(Path(path), datasets, {MODEL: graphlog.load(MODEL)})
        case _:
            raise SystemExit(__doc__)
