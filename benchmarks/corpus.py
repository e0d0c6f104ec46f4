r"""Write the molecules that the model for molecules is pre-trained on, without any label.

    python benchmarks/corpus.py runs/corpus druglike_mix.csv.gz
    graphlog featurize runs/corpus/molecules.csv.gz -o runs/stores/near \
        --schema molecule-cip --exclude runs/corpus/held_out.csv.gz
    python benchmarks/corpus.py overlap runs/stores/near

``molecules.csv.gz`` holds the drug-like collection and the training sets of the MoleculeNet sets;
``held_out.csv.gz`` the validation and test sets of the same sets, which are never trained on.
``overlap`` counts the test molecules of the ADME endpoints in what is trained on.
"""

import sys
from pathlib import Path

import pandas as pd
from rdkit.Chem import CanonSmiles

from graphlog.benchmark.stages import given_folds
from graphlog.data.store import open_store
from graphlog.domains import schema_named
from graphlog.downstream.tasks import open_labeled
from graphlog.files import beside

SETS = (
    *("bbbp", "tox21", "toxcast", "sider", "clintox", "muv", "hiv", "bace"),
    *("esol", "freesolv", "lipophilicity", "qm7", "qm8"),
)


def write_smiles(path: Path, smiles: list[str]) -> None:
    """Write one column of SMILES."""
    with beside(path) as unfinished:
        pd.DataFrame({"smiles": smiles}).to_csv(unfinished, index=False, compression="gzip")


def main(folder: Path, drug_like: Path) -> None:
    """Write both files to ``folder``."""
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
    write_smiles(folder / "molecules.csv.gz", molecules)
    write_smiles(folder / "held_out.csv.gz", list(dict.fromkeys(held_out)))
    print(f"{len(molecules):,} molecules; {len(held_out):,} held out")


def overlap(store: Path) -> None:
    """Print how many test molecules of each ADME endpoint are trained on, by canonical SMILES."""
    learned = {CanonSmiles(text) for text in open_store(store).texts()}
    for name in ("hlm", "mdr1", "rlm", "solubility-adme", "hppb", "rppb"):
        data = open_labeled(name, schema_named("molecule"), split=given_folds(name))
        test = [CanonSmiles(s) for s in data.store.texts(data.split.test)]
        print(f"{name}: {sum(s in learned for s in test)} of {len(test)}", flush=True)


if __name__ == "__main__":
    first, second = sys.argv[1:]
    if first == "overlap":
        overlap(Path(second))
    else:
        main(Path(first), Path(second))
