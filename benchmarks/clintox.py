"""Measure how ClinTox scores depend on charges, and on each toxic molecule of the test set.

    python benchmarks/clintox.py written OUT.csv
    python benchmarks/clintox.py molecules OUT.csv "from scratch=RUN,RUN" "released=RUN,RUN"

``written`` scores models on the scaffold split: a random forest on the numbers of charged atoms,
and models of the molecules as they are given and with their charges neutralized. ``molecules``
computes how much each toxic molecule of the test set lowers the ROC-AUC of fine-tuned runs, which
are listed in the order of their seeds.
"""

import argparse
from pathlib import Path

import numpy as np
import pandas as pd
from jaxtyping import Float
from rdkit import Chem
from rdkit.Chem.MolStandardize.rdMolStandardize import Uncharger
from sklearn.ensemble import RandomForestClassifier
from sklearn.metrics import roc_auc_score

import graphlog
from graphlog.domains import schema_named
from graphlog.downstream.report import Rule
from graphlog.downstream.tasks import LabeledGraphs, open_labeled

TOXIC = 1
"""Column of the toxicity target, which has ten positive molecules in the test set."""
SEEDS = (0, 1, 2, 3, 4)
"""Seeds of the untrained networks."""


def charges(data: LabeledGraphs, molecules: list[Chem.Mol]) -> list[list[object]]:
    """Return the scores of a random forest on the numbers of positive and negative atoms."""
    signs = [[np.sign(atom.GetFormalCharge()) for atom in mol.GetAtoms()] for mol in molecules]
    counts = np.array([[row.count(1), row.count(-1)] for row in signs])
    rows: list[list[object]] = []
    for name, labels in zip(data.targets, data.labels.T, strict=True):
        forest = RandomForestClassifier(500, min_samples_leaf=2, random_state=0)
        forest.fit(counts[data.split.train], labels[data.split.train])
        scores = forest.predict_proba(counts[data.split.test])[:, 1]
        area = roc_auc_score(labels[data.split.test], scores)
        rows.append(["as given", "numbers of charged atoms", "random forest", name, area])
    return rows


def models(data: LabeledGraphs, written: str, smiles: list[str]) -> list[list[object]]:
    """Return the scores of models of frozen features for these SMILES, with the same split.

    ``written`` names the form of the SMILES in the results.
    """
    table = pd.DataFrame(data.labels, columns=list(data.targets)).assign(smiles=smiles)
    sets = {name: part.tolist() for name, part in data.split._asdict().items()}
    rows: list[list[object]] = []
    for head in ("linear", "kernel"):
        report = graphlog.probe(
            "graphlog-mol",
            table,
            sets,
            targets=list(data.targets),
            head=head,
            baselines=["random", "ecfp-lr"],
            baseline_seeds=SEEDS,
        )
        for row in report.rows:
            if row.key is not None and row.key.rule is not Rule.FIXED:
                rows += [[written, row.model, head, *score] for score in row.per_task.items()]
    return rows


def costs(labels: Float[np.ndarray, "N"], scores: Float[np.ndarray, "N"]) -> Float[np.ndarray, "P"]:
    """Return by how much each positive lowers the ROC-AUC; a tie with a negative counts half."""
    positive, negative = scores[labels == 1, None], scores[labels == 0]
    return ((negative > positive) + (negative == positive) / 2).mean(axis=1) / len(positive)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=("written", "molecules"))
    parser.add_argument("out", type=Path)
    parser.add_argument("arms", nargs="*", help="NAME=RUN,RUN,...")
    options = parser.parse_args()
    data = open_labeled("clintox", schema_named("molecule"))
    texts = data.store.texts()
    if options.what == "written":
        molecules = [Chem.MolFromSmiles(text) for text in texts]
        plain = [Chem.MolToSmiles(Uncharger().uncharge(mol)) for mol in molecules]
        rows = charges(data, molecules)
        rows += models(data, "as given", texts) + models(data, "uncharged", plain)
        columns = ["written", "model", "head", "target", "roc_auc"]
    else:
        columns, rows = ["arm", "seed", "smiles", "cost"], []
        test = data.split.test
        labels = data.labels[test, TOXIC]
        toxic = [texts[k] for k in test[labels == 1]]
        for name, runs in (arm.split("=") for arm in options.arms):
            for seed, run in enumerate(runs.split(",")):
                scores = np.asarray(graphlog.predict(run, "clintox"))[test, TOXIC]
                pairs = zip(toxic, costs(labels, scores), strict=True)
                rows += [[name, seed, smiles, cost] for smiles, cost in pairs]
    table = pd.DataFrame(rows, columns=columns)
    table.to_csv(options.out, index=False)
    print(table.to_string())


if __name__ == "__main__":
    main()
