"""Thousands of rows of rubbish: nothing but one-line errors, and every row accounted for."""

import random
from pathlib import Path

import pytest

from graphlog.api import read_molecules
from graphlog.domains.molecule import MOLECULE, MOLECULE_RICH, featurize_smiles
from graphlog.errors import GraphLoGError

HEADS = (
    b"",
    b"smiles,y\n",
    b"smiles\n",
    b'"smiles"\t"y"\n',
    b"\x1f\x8b\x08",
    b"\xef\xbb\xbfsmiles\r\n",
)
ALPHABET = "CNOPSFIBrlcnops[]()=#$:.-+@/\\%0123456789*~<>|HeaUZ{}!? \t\"',;"


def mutated(text: str, draw: random.Random) -> str:
    for _ in range(draw.randrange(1, 4)):
        k = draw.randrange(len(text) + 1)
        match draw.randrange(4):
            case 0:
                text = text[:k] + draw.choice(ALPHABET) + text[k:]
            case 1:
                text = text[:k] + text[k + draw.randrange(1, 6) :]
            case 2:
                text = text[:k] + draw.choice(ALPHABET) + text[k + 1 :]
            case _:
                text = text[k:] + text[:k]
    return text


@pytest.mark.parametrize("schema", [MOLECULE, MOLECULE_RICH], ids=lambda s: s.name)
def test_mutated_smiles_become_graphs_or_reasons(schema, nci) -> None:
    draw = random.Random(7)
    texts = [mutated(draw.choice(nci), draw) for _ in range(5000)]
    chunk, rejects = featurize_smiles(texts, schema)
    assert sorted([*chunk.rows.tolist(), *(k for k, _ in rejects)]) == list(range(5000))
    assert all(reason and "\n" not in reason for _, reason in rejects)
    chunk.check(schema)


def test_characters_of_any_kind_become_reasons() -> None:
    draw = random.Random(8)
    texts = [
        "".join(chr(draw.randrange(0x110000)) for _ in range(draw.randrange(12)))
        for _ in range(2000)
    ]
    chunk, rejects = featurize_smiles(texts, MOLECULE)
    assert len(chunk) + len(rejects) == 2000


def test_a_file_with_mutated_rows_accounts_for_each(tmp_path: Path, nci: list[str]) -> None:
    draw = random.Random(9)
    known = [m for m in nci if '"' not in m]
    rows = [
        mutated(draw.choice(known), draw).translate(str.maketrans('"\n', "''"))
        if k % 3 == 0
        else draw.choice(known)
        for k in range(4_000)
    ]
    path = tmp_path / "a.tsv"
    path.write_text(
        "smiles\ty\n" + "".join(f"{row.replace(chr(9), ' ')}\t{k}\n" for k, row in enumerate(rows))
    )
    store = read_molecules(path, targets=["y"], workers=1)
    assert store.num_rows == 4_000
    assert sorted([*store.rows.tolist(), *(r.row for r in store.rejects)]) == list(range(4_000))
    assert store.labels.ravel().tolist() == store.rows.tolist()
    assert len(store.rejects) > 400


@pytest.mark.parametrize("ending", ["csv", "tsv", "smi", "csv.gz", "parquet"])
def test_bytes_of_any_kind_are_one_line(tmp_path: Path, ending: str) -> None:
    draw = random.Random(10)
    for k in range(60):
        path = tmp_path / f"{k}.{ending}"
        path.write_bytes(draw.choice(HEADS) + draw.randbytes(draw.randrange(400)))
        store, message = None, ""
        try:
            store = read_molecules(path, workers=1)
        except GraphLoGError as e:
            message = str(e)
        assert "\n" not in message
        assert store is None or len(store) + len(store.rejects) == store.num_rows
