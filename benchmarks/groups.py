"""What embeddings and prototypes are worth where groups of molecules matter.

    python benchmarks/groups.py runs/stores/near hiv tox21 muv toxcast mix
    python benchmarks/groups.py runs/stores/near bace bbbp hlm mdr1 lipophilicity esol
    python benchmarks/groups.py report

Retrieval (hiv, tox21, muv): each of up to 20 active molecules of an assay is a query; all other
molecules with a label are ranked by similarity to it. Groups (tox21, toxcast, mix): adjusted mutual
information of partitions (the leaves and roots of the shipped tree, K-means of the same sizes on
each representation) with scaffolds, with assays, and with the collection that a molecule comes
from. Choice (bace and the sets beside it): of a random four fifths of a set 50 or 100 molecules are
chosen to be labeled, a kernel model of the shipped embedding is fitted to them and judged on the
other fifth, ten times. Sets of the first two are random samples of :data:`SAMPLE` molecules, for
retrieval with every active one besides; they are read from $GRAPHLOG_MIRROR. Untrained networks are
calibrated on the graph store named, which must be that of the shipped model's pre-training. Rows go
to results/groups.csv.gz; sets that are there are not computed again. ``report`` prints the tables
of docs/results.md.
"""

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from rdkit import Chem
from rdkit.Chem import rdFingerprintGenerator
from rdkit.ML.Scoring import Scoring
from rdkit.SimDivFilters.rdSimDivPickers import MaxMinPicker
from sklearn.cluster import KMeans
from sklearn.metrics import adjusted_mutual_info_score

import graphlog
from graphlog.data.store import open_store
from graphlog.datasets import find_spec
from graphlog.domains.molecule import morgan_fingerprints, scaffold_groups
from graphlog.domains.molecule.descriptors import target_values
from graphlog.downstream.kernel import fit_kernel
from graphlog.downstream.linear import standardize
from graphlog.downstream.metrics import evaluate, paired_interval
from graphlog.downstream.tasks import open_labeled
from graphlog.report.hierarchy import Hierarchy

MODEL = "graphlog-mol"
SAMPLE, QUERIES, NETWORKS = 3_000, 20, 5
RETRIEVED, GROUPED = ("hiv", "tox21", "muv"), ("tox21", "toxcast", "mix")
CHOSEN = ("bace", "bbbp", "hlm", "mdr1", "lipophilicity", "esol")
DRAWS, BUDGETS = 10, (50, 100)
RESULTS = Path(__file__).parent / "results" / "groups.csv.gz"
EMBEDDING, UNTRAINED, ECFP4, DESCRIPTORS = MODEL, "untrained", "ECFP4", "descriptors"
FUSIONS = ((EMBEDDING, ECFP4), (EMBEDDING, ECFP4, DESCRIPTORS), (ECFP4, DESCRIPTORS))


def sample(name: str, actives: bool) -> pd.DataFrame:
    """Return a random sample of a data set, and all molecules that are active in an assay."""
    place = "chem/pretrain/druglike_mix.csv.gz" if name == "mix" else find_spec(name).path
    table = pd.read_csv(Path(os.environ["GRAPHLOG_MIRROR"]) / place)
    drawn = np.random.default_rng(0).random(len(table)) < SAMPLE / len(table)
    if actives:
        drawn |= (table.drop(columns="smiles") == 1).any(axis=1).to_numpy()
    table = table[drawn].reset_index(drop=True)
    return table.iloc[graphlog.read_molecules(table["smiles"].tolist()).rows].reset_index(drop=True)


def representations(smiles: list[str], collection: Path) -> tuple[dict[str, np.ndarray], Any]:
    """Return a matrix a representation, untrained networks numbered, and the graphs."""
    encoder, store = graphlog.load(MODEL), open_store(collection)
    if store.digest != encoder.info["data_digest"]:
        raise SystemExit(f"{collection} is not what {MODEL} was pre-trained on.")
    graphs = graphlog.read_molecules(smiles, schema=encoder.schema)
    found = {EMBEDDING: encoder.embed_store(graphs)}
    for seed in range(NETWORKS):
        settings = {"layer": "jk", "seed": seed, "graphs": store}
        untrained = graphlog.random_encoder(encoder.config, encoder.schema, **settings)
        found[f"{UNTRAINED} {seed}"] = untrained.embed_store(graphs)
    rows = np.arange(len(smiles))
    found = {name: standardize(values, rows) for name, values in found.items()}
    found[ECFP4] = morgan_fingerprints(smiles).astype(np.float32)
    found[DESCRIPTORS] = standardize(target_values(smiles), rows)
    return found, graphs


def similarities(name: str, values: np.ndarray, query: int) -> np.ndarray:
    """Return the similarity of every row to one: Tanimoto of bits, cosine of the others."""
    dots = values @ values[query]
    if name == ECFP4:
        counts = values.sum(axis=1)
        return dots / np.maximum(counts + counts[query] - dots, 1)
    return dots / np.maximum(np.linalg.norm(values, axis=1) * np.linalg.norm(values[query]), 1e-12)


def retrieve(dataset: str, collection: Path) -> Iterator[dict[str, Any]]:
    """Yield enrichment, BEDROC and reciprocal rank of a query's first active, means of queries."""
    table = sample(dataset, actives=True)
    smiles = table.pop("smiles").tolist()
    values, _ = representations(smiles, collection)
    for assay in table.columns:
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
            ranks |= {" + ".join(f): np.mean([ranks[n] for n in f], axis=0) for f in FUSIONS}
            for name, rank in ranks.items():
                others = np.delete(np.arange(len(known)), query)
                order = others[np.argsort(-rank[others], kind="stable")]
                scores.setdefault(name, []).append(early(active[order]))
        for name, found in scores.items():
            means = np.mean(found, axis=0)
            for metric, value in zip(("EF 1 %", "BEDROC 20", "MRR"), means, strict=True):
                row = {"task": "retrieve", "dataset": dataset, "of": assay, "model": name}
                yield {**row, "molecules": len(known), "metric": metric, "value": value}


def early(is_active: np.ndarray) -> tuple[float, float, float]:
    """Return enrichment at 1 %, BEDROC 20 and the reciprocal rank of the first active."""
    ranked = is_active[:, None].tolist()
    enrichment = Scoring.CalcEnrichment(ranked, 0, [0.01])[0]
    return enrichment, Scoring.CalcBEDROC(ranked, 0, 20.0), 1 / (1 + int(is_active.argmax()))


def profiles(dataset: str, table: pd.DataFrame) -> tuple[str, np.ndarray]:
    """Return what molecules of a set are told apart by, as codes; -1 where it is not known."""
    if dataset == "mix":
        return "ChEMBL or ZINC", table.source.astype("category").cat.codes.to_numpy()
    active = table.drop(columns="smiles") == 1
    if dataset == "tox21":
        words = active.apply(lambda row: "".join("01"[v] for v in row), axis=1)
        codes = words.astype("category").cat.codes.to_numpy()
        return "assays it is active in", np.where(active.any(axis=1), codes, -1)
    families = active.columns.str.split("_").str[0]
    rate = (
        active.T.groupby(families).sum().T / table.iloc[:, 1:].notna().T.groupby(families).sum().T
    )
    best = rate.fillna(0).to_numpy().argmax(axis=1)
    return "assay family of most hits", np.where(active.any(axis=1), best, -1)


def group(dataset: str, collection: Path) -> Iterator[dict[str, Any]]:
    """Yield how far partitions agree with what chemists and assays tell apart."""
    table = sample(dataset, actives=False)
    smiles = table["smiles"].tolist()
    values, graphs = representations(smiles, collection)
    hierarchy = Hierarchy.of(graphlog.load(MODEL))
    assert hierarchy is not None
    paths = hierarchy.assign(graphs).paths
    name, codes = profiles(dataset, table)
    truths = {"scaffold": scaffold_groups(smiles), name: codes}
    for level, layer in (("roots", 0), ("leaves", -1)):
        size = hierarchy.forest.sizes[layer]
        partitions = [(f"tree of {MODEL}", 0, paths[:, layer])]
        for model, matrix in values.items():
            label = model.rpartition(" ")[0] if model.startswith(UNTRAINED) else model
            for seed in [int(model[-1])] if label == UNTRAINED else range(NETWORKS):
                fitted = KMeans(size, n_init=1, random_state=seed).fit_predict(matrix)
                partitions.append((f"K-means, {label}", seed, fitted))
        for truth, wanted in truths.items():
            known = wanted >= 0
            for model, seed, found in partitions:
                value = adjusted_mutual_info_score(wanted[known], found[known])
                row = {"task": f"group: {level}", "dataset": dataset, "of": truth}
                row |= {"model": model, "seed": seed, "molecules": int(known.sum())}
                yield {**row, "groups": size, "metric": "AMI", "value": value}


def spread_over(groups: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Return all rows, one of each group in turn, both in random order."""
    order = rng.permutation(len(groups))
    turns = pd.Series(groups[order]).groupby(groups[order]).cumcount().to_numpy()
    return order[np.lexsort((rng.permutation(len(groups)), turns))]


def choices(
    graphs: Any, smiles: list[str], values: np.ndarray, size: int, draw: int
) -> Iterator[tuple[str, np.ndarray]]:
    """Yield the rows that each way would have labeled; which are active nobody knows yet."""
    rng = np.random.default_rng(draw)
    yield "random", rng.permutation(len(smiles))[:size]
    maker = rdFingerprintGenerator.GetMorganGenerator(radius=2, fpSize=2048)
    bits = maker.GetFingerprints([Chem.MolFromSmiles(s) for s in smiles])
    yield (
        "MaxMin, ECFP4",
        np.array(MaxMinPicker().LazyBitVectorPick(bits, len(bits), size, seed=draw)),
    )
    shipped = Hierarchy.of(graphlog.load(MODEL))
    assert shipped is not None
    yield f"leaves of {MODEL}", spread_over(shipped.assign(graphs).paths[:, -1], rng)[:size]
    fitted = Hierarchy.fitted(graphlog.load(MODEL), graphs, centers=50, seed=draw)
    yield (
        "leaves of a tree fitted to them",
        spread_over(fitted.assign(graphs).paths[:, -1], rng)[:size],
    )
    centers = KMeans(size, n_init=1, random_state=draw).fit(values).transform(values)
    yield "nearest to K-means centers", np.unique(centers.argmin(axis=0))


def choose(dataset: str) -> Iterator[dict[str, Any]]:
    """Yield the scores of kernel models fitted to the few molecules that each way would label."""
    encoder = graphlog.load(MODEL)
    data = open_labeled(dataset, encoder.schema)
    embedding = encoder.embed_store(data.store, "jk+sum")
    smiles = data.store.texts()
    for draw in range(DRAWS):
        order = np.random.default_rng(1000 + draw).permutation(len(smiles))
        test, pool = np.split(order, [len(order) // 5])
        values = standardize(embedding[pool], np.arange(len(pool)))
        for size in BUDGETS:
            inside = data.store.subset(pool), [smiles[i] for i in pool], values, size, draw
            for name, rows in choices(*inside):
                fitted = fit_kernel({"": embedding}, data.labels, pool[rows], data.task).model
                predictions, _ = fitted.predict([embedding[test]])
                score = evaluate(data.labels[test], predictions, data.task).scores
                metric = "r2" if data.task == "regression" else "roc_auc"
                row = {"task": f"choose {size}", "dataset": dataset, "of": "the set", "model": name}
                yield {
                    **row,
                    "seed": draw,
                    "molecules": len(rows),
                    "metric": metric,
                    "value": score[metric],
                }


def measure(collection: Path, datasets: list[str]) -> None:
    """Add the rows of each data set that has none yet."""
    rows = pd.read_csv(RESULTS) if RESULTS.exists() else pd.DataFrame({"dataset": []})
    for dataset in datasets:
        if dataset in set(rows["dataset"]):
            continue
        found: list[dict[str, Any]] = []
        if dataset in RETRIEVED:
            found += retrieve(dataset, collection)
        if dataset in GROUPED:
            found += group(dataset, collection)
        if dataset in CHOSEN:
            found += choose(dataset)
        rows = pd.concat([rows, pd.DataFrame(found).round({"value": 5})])
        rows.to_csv(RESULTS, index=False)


def tables(rows: pd.DataFrame) -> str:
    """Return the tables of docs/results.md: means, and deviations over networks and clusterings."""
    lines: list[str] = []
    searched = rows[rows["task"] == "retrieve"].copy()
    searched["seed"] = searched["model"].str.extract(r"untrained (\d)")[0].fillna("0")
    searched["model"] = searched["model"].str.replace(r"untrained \d", UNTRAINED, regex=True)
    grouped = rows[rows["task"].str.startswith("group")]
    for frame, columns, scale in (
        (searched, ["dataset", "metric"], 1),
        (grouped, ["task", "dataset", "of"], 100),
    ):
        means = frame.groupby([*columns, "model", "seed"])["value"].mean() * scale
        wide = means.groupby([*columns, "model"]).agg(["mean", "std"])
        found = list(dict.fromkeys(wide.index.droplevel("model")))
        lines += ["", f"| | {' | '.join(', '.join(c) for c in found)} |"]
        lines += ["|" + "---|" * (len(found) + 1)]
        for model in dict.fromkeys(frame["model"]):
            cells = [wide.loc[(*c, model)] for c in found]
            words = [
                f"{c['mean']:.2f}" + (f" ± {c['std']:.2f}" if c["std"] == c["std"] else "")
                for c in cells
            ]
            lines.append(f"| {model} | {' | '.join(words)} |")
    return "\n".join([*lines, "", *choice_table(rows)]).lstrip()


def choice_table(rows: pd.DataFrame) -> Iterator[str]:
    """Yield the lines of the table of molecules chosen to be labeled.

    Differences are of the mean of all sets in the same split, with 95 % intervals over splits.
    """
    chosen = rows[rows["task"].str.startswith("choose")]
    yield f"| | labels | {' | '.join(CHOSEN)} | mean | less random | less MaxMin |"
    yield "|" + "---|" * (len(CHOSEN) + 5)
    for size in BUDGETS:
        frame = chosen[chosen["task"] == f"choose {size}"]
        wide = frame.pivot(index=["model", "seed"], columns="dataset", values="value") * 100
        means = wide.mean(axis=1)
        for model in dict.fromkeys(frame["model"]):
            cells = [f"{wide.loc[model][name].mean():.1f}" for name in CHOSEN]
            for other in ("random", "MaxMin, ECFP4"):
                gap = means[model] - means[other]
                mean, half = paired_interval(gap.to_numpy(), 0.0)
                text = f"{mean:+.1f} ({mean - half:+.1f} to {mean + half:+.1f})"
                cells.append(text if model != other else "")
            cells.insert(len(CHOSEN), f"{means[model].mean():.1f}")
            yield f"| {model} | {size} | {' | '.join(cells)} |"


if __name__ == "__main__":
    if sys.argv[1] == "report":
        print(tables(pd.read_csv(RESULTS)))
    else:
        measure(Path(sys.argv[1]), sys.argv[2:])
