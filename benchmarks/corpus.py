r"""Write the molecules, without labels, on which the model `graphlog-mol` is pre-trained.

    python benchmarks/corpus.py runs/corpus druglike_mix.csv.gz
    graphlog featurize runs/corpus/molecules.csv.gz -o runs/stores/near \
        --schema molecule-cip --exclude runs/corpus/held_out.csv.gz
    python benchmarks/corpus.py overlap runs/stores/near

``molecules.csv.gz`` contains the drug-like collection and the training sets of MoleculeNet;
``held_out.csv.gz`` contains the validation and test sets, on which no model is trained.
``overlap`` counts the test molecules of the ADME endpoints that the store contains.
"""

import sys
from pathlib import Path

import pandas as pd
from rdkit.Chem import CanonSmiles

from graphlog.benchmark.stages import given_folds
from graphlog.data.store import open_store
from graphlog.domains import schema_named
from graphlog.downstream.tasks import open_labeled

SETS = (
    *("bbbp", "tox21", "toxcast", "sider", "clintox", "muv", "hiv", "bace"),
    *("esol", "freesolv", "lipophilicity", "qm7", "qm8"),
)


def main(folder: Path, drug_like: Path) -> None:
    """Write the molecules to train on and the held-out molecules to ``folder``."""
    folder.mkdir(parents=True, exist_ok=True)
    molecules = pd.read_csv(drug_like, keep_default_na=False).iloc[:, 0].tolist()
    seen, held_out = set(molecules), []
    for name in SETS:
        data = open_labeled(name, schema_named("molecule"))
        train = data.store.texts(data.split.train)
        new = [s for s in dict.fromkeys(train) if s not in seen]
        seen.update(new)
        molecules += new
        held_out += data.store.texts(data.split.valid) + data.store.texts(data.split.test)
        print(f"{name}: {len(train):,} of the training set, {len(new):,} new", flush=True)
    for name, smiles in (("molecules", molecules), ("held_out", list(dict.fromkeys(held_out)))):
        pd.DataFrame({"smiles": smiles}).to_csv(folder / f"{name}.csv.gz", index=False)
    print(f"{len(molecules):,} molecules; {len(held_out):,} held out")


def overlap(store: Path) -> None:
    """Print how many test molecules of each ADME endpoint are in the store, by canonical SMILES."""
    trained_on = {CanonSmiles(text) for text in open_store(store).texts()}
    for name in ("hlm", "mdr1", "rlm", "solubility-adme", "hppb", "rppb"):
        data = open_labeled(name, schema_named("molecule"), split=given_folds(name))
        test = [CanonSmiles(s) for s in data.store.texts(data.split.test)]
        print(f"{name}: {sum(s in trained_on for s in test)} of {len(test)}", flush=True)


if __name__ == "__main__":
    first, second = sys.argv[1:]
    if first == "overlap":
        overlap(Path(second))
    else:
        main(Path(first), Path(second))
