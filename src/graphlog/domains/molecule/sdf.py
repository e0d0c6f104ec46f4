"""RDKit's molecules and files as SMILES, and molecules as SDF."""

from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import chain, islice
from pathlib import Path
from typing import Any

from rdkit import Chem, RDConfig, rdBase
from rdkit.Chem import rdDepictor

from graphlog.data.columns import Row, Table
from graphlog.domains.molecule.parse import parsed
from graphlog.errors import DataError
from graphlog.files import open_bytes

_LOOKED_AT = 200
"""Molecules whose data fields become the columns of the table."""
_NAME = "_Name"
_TITLES = ("name", "id", "compound_id", "molecule_id", "chembl_id", "title")
"""Columns whose text becomes the first line of a record, in lower case."""


def rdkit_file(origin: str, path: str) -> Path:
    """Return a file below RDKit's folder of data (``rdkit-data``) or ``rdkit-contrib``."""
    folder: str = RDConfig.RDContribDir if origin == "rdkit-contrib" else RDConfig.RDDataDir
    return Path(folder) / path


def smiles_of(mol: Any) -> str:
    """Return the SMILES of an RDKit molecule; empty where RDKit cannot write one.

    Atoms are numbered as in the SMILES, not as in the molecule.
    """
    try:
        return Chem.MolToSmiles(mol)
    except Exception:  # RDKit raises errors of its own, among them for molecules it never sanitized
        return ""


@contextmanager
def open_sdf(path: Path) -> Generator[Table]:
    """Open an SDF file as a table of SMILES, names and data fields.

    Raises:
        DataError: If it cannot be read or holds no molecule.
    """
    with open_bytes(path) as stream:
        rows = _rows(stream, path)
        first = list(islice(rows, _LOOKED_AT))
        if not first:
            raise DataError(f"{path}: holds no molecule.")
        columns = list(dict.fromkeys(chain(["smiles", "name"], *(row.fields for row in first))))
        empty = dict.fromkeys(columns, "")
        filled = (
            row._replace(fields={**empty, **{k: v for k, v in row.fields.items() if k in empty}})
            for row in chain(first, rows)
        )
        yield Table(str(path), columns, 0, filled)


def _rows(stream: Any, path: Path) -> Iterator[Row]:
    quiet = rdBase.BlockLogs()
    try:
        for number, mol in enumerate(Chem.ForwardSDMolSupplier(stream)):
            if mol is None:
                yield Row(number, "", {}, "RDKit cannot parse this SDF record")
                continue
            smiles = smiles_of(mol)
            fields = {str(key): str(value) for key, value in mol.GetPropsAsDict().items()}
            name = mol.GetProp(_NAME) if mol.HasProp(_NAME) else ""
            yield Row(number, smiles, {**fields, "smiles": smiles, "name": name})
    except (OSError, RuntimeError, UnicodeDecodeError) as e:
        raise DataError(f"{path}: not a readable SDF file ({str(e).splitlines()[0]}).") from None
    finally:
        del quiet


def records_like(path: Path, rows: Iterable[Mapping[str, str]]) -> Iterator[str]:
    """Yield the SDF records of a file with other data fields; coordinates are kept.

    A molecule that RDKit cannot parse becomes one without atoms, so that row i stays row i.
    """
    with rdBase.BlockLogs(), open_bytes(path) as stream:
        # as many rows as were asked for, which may be fewer than the file holds
        for fields, mol in zip(rows, Chem.ForwardSDMolSupplier(stream), strict=False):
            yield _record(mol or Chem.Mol(), fields)


def drawn_records(smiles: Sequence[str], rows: Iterable[Mapping[str, str]]) -> Iterator[str]:
    """Yield the SDF record of each SMILES with the data fields of its row, drawn in two dimensions.

    A text that RDKit cannot parse becomes a molecule without atoms, so that row i stays row i.
    """
    for mol, fields in zip(parsed(smiles), rows, strict=True):
        drawn = Chem.Mol() if isinstance(mol, str) else Chem.Mol(mol)
        rdDepictor.Compute2DCoords(drawn)
        yield _record(drawn, fields)


def _record(mol: Any, fields: Mapping[str, str]) -> str:
    for key in mol.GetPropNames():
        mol.ClearProp(key)
    lower = {name.lower(): value for name, value in fields.items()}
    title = next((lower[key] for key in _TITLES if lower.get(key)), "")
    mol.SetProp(_NAME, " ".join(title.split())[:80])
    for name, value in fields.items():
        # an empty line would end a data field, and > the name of one
        mol.SetProp(name.replace(">", ")").replace("<", "("), " ".join(value.split()))
    try:
        return Chem.SDWriter.GetText(mol)
    except Exception:  # RDKit raises errors of its own
        bare = Chem.Mol()
        for name in mol.GetPropNames(includePrivate=True):
            bare.SetProp(name, mol.GetProp(name))
        return Chem.SDWriter.GetText(bare)
