"""Thousands of rows of rubbish: nothing but one-line errors, and every row accounted for."""

import random
from pathlib import Path

import pytest

from graphlog.api import read_molecules
from graphlog.domains.molecule import MOLECULE, MOLECULE_RICH, featurize_smiles
from graphlog.errors import GraphLoGError

HEADS = (b"", b"smiles,y\n", b"smiles\n", b'"smiles"\t"y"\n', b"\x1f\x8b\x08")
HEADS += (b"\xef\xbb\xbfsmiles\r\n",)
ALPHABET = "CNOPSFIBrlcnops[]()=#$:.-+@/\\%0123456789*~<>|HeaUZ{}!? \t\"',;"

PLAIN = str.maketrans('"\n\t', "'' ")


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
def test_mutated_smiles_become_graphs_or_reasons(schema, nci):
    draw = random.Random(7)
    texts = [mutated(draw.choice(nci), draw) for _ in range(5000)]
    chunk, rejects = featurize_smiles(texts, schema)
    assert sorted([*chunk.rows.tolist(), *(k for k, _ in rejects)]) == list(range(5000))
    assert all(reason and "\n" not in reason for _, reason in rejects)
    chunk.check(schema)


def test_characters_of_any_kind_become_reasons():
    draw = random.Random(8)
    texts = [
        "".join(map(chr, draw.choices(range(0x110000), k=draw.randrange(12)))) for _ in range(2000)
    ]
    chunk, rejects = featurize_smiles(texts, MOLECULE)
    assert len(chunk) + len(rejects) == 2000


def test_a_file_with_mutated_rows_accounts_for_each(tmp_path: Path, nci: list[str]):
    draw, count = random.Random(9), 2_000
    rows = [
        draw.choice(nci) if k % 3 else mutated(draw.choice(nci), draw).translate(PLAIN)
        for k in range(count)
    ]
    path = tmp_path / "a.tsv"
    path.write_text("smiles\ty\n" + "".join(f"{row}\t{k}\n" for k, row in enumerate(rows)))
    store = read_molecules(path, targets=["y"], workers=1)
    assert store.num_rows == count
    assert sorted([*store.rows.tolist(), *(r.row for r in store.rejects)]) == list(range(count))
    assert store.labels.ravel().tolist() == store.rows.tolist()
    assert len(store.rejects) > count / 10


@pytest.mark.parametrize("ending", ["csv", "tsv", "smi", "csv.gz", "parquet"])
def test_bytes_of_any_kind_are_one_line(tmp_path: Path, ending: str):
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
