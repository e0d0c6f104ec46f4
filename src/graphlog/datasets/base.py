"""What is known about a named data set: where it is, what is in it, how it is judged, and the hashes that prove it."""

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal


@dataclass(frozen=True, slots=True, kw_only=True)
class DatasetSpec:
    """One data set. Files are laid out alike in the mirror and in the local cache."""

    name: str
    """As typed by the user."""
    description: str
    """One line."""
    rows: int
    """Data rows, unparsable ones included."""
    path: str
    """File below the mirror or the cache; below RDKit's own folders where ``origin`` is ``rdkit``."""
    domain: Literal["molecule", "protein", "graph"] = "molecule"
    """What its records are: a table of molecules, an interaction network, or any graphs."""
    sha256_file: str = ""
    """Hash of that file; empty for a public network that is not mirrored, whose layout and whole length are checked instead."""
    sha256_smiles: str = ""
    """Hash of its SMILES column (:func:`hash_smiles`): what is parsed, however it was packed; empty where there is none."""
    licence: str
    """Terms of use."""
    source: str
    """Who published it."""
    url: str | None = None
    """Public address of the file as its publisher gives it; None where it comes with RDKit."""
    origin: Literal["file", "molsets", "rdkit-data", "rdkit-contrib"] = "file"
    """Whether ``url`` is the file, the package that holds it, or it is already here with RDKit."""
    tasks: tuple[str, ...] = ()
    """Label columns; empty with a ``task``: every column but the SMILES."""
    num_tasks: int = 0
    """Number of label columns."""
    task: Literal["classification", "regression", "multiclass"] | None = None
    """What the labels are; None without labels."""
    metric: Literal["roc_auc", "rmse", "mae", "accuracy"] | None = None
    """The score it is usually judged by."""
    split: str = "scaffold"
    """How it is usually split."""
    canonical_split: bool = False
    """Whether the pre-train-GNNs family takes scaffolds of its canonical SMILES rather than of those in the file."""
    smiles_column: str | None = "smiles"
    """Name of the SMILES column; None for a file without a header."""
    header: tuple[str, ...] | None = None
    """Names of the columns of a file without a header."""
    public_tasks: Mapping[str, str] = field(default_factory=dict[str, str])
    """Names of label columns in the public file, where they differ, and what they are called here."""
    sha256_public_smiles: tuple[str, ...] = ()
    """Hashes of the SMILES column of the public file, where it has rows that the mirror's lacks."""
    label_file: str | None = None
    """File of ``name,label`` lines, where labels are kept apart from the SMILES; beside ``path``."""
    sha256_label_file: str = ""
    """Hash of that file."""
    begins: str = "protein1 protein2"
    """How the first line of an unpinned file of proteins begins."""
    networks: tuple[str, ...] = ()
    """Of a labelled set of proteins: the networks whose ego-networks it holds; ``path`` is its table of labels, if it has one."""
    labelling: Literal["", "table", "complexes", "go"] = ""
    """How its labels come about: as listed in ``path``, as membership of any complex, or from GO annotations."""
    options: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """How its ego-networks are cut and its functions chosen, where that is not the default."""


def hash_smiles(smiles: Iterable[str]) -> str:
    r"""Return the sha256 of the SMILES, stripped and each followed by a line end.

    Example:
        >>> hash_smiles(["CCO"]) == hashlib.sha256(b"CCO\n").hexdigest()
        True
    """
    total = hashlib.sha256()
    for text in smiles:
        total.update(f"{text.strip()}\n".encode("utf-8", "surrogatepass"))
    return total.hexdigest()
