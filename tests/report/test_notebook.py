"""What a notebook shows: whole, escaped, and never an error."""

from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np

import graphlog
from downstream_support import (
    CHAINS,
    IS_ALCOHOL,
    chain_store,
    classifier,
    labeled,
    tiny_encoder,
    tuned,
)
from house_support import python

EVIL = "<script>alert(1)</script>"


class Tags(HTMLParser):
    def __init__(self, text: str) -> None:
        super().__init__()
        self.seen: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.seen.append(tag)


def test_a_store_draws_its_molecules():
    html = chain_store()._repr_html_()
    assert html.count("<svg") == 6
    assert CHAINS[0] in html
    assert ">48<" in html
    assert "GraphStore" in chain_store().subset(np.arange(0))._repr_html_()


def test_a_store_that_was_only_opened_is_drawn(tmp_path: Path):
    chain_store().save(tmp_path / "s")
    code = "import sys, graphlog; print(graphlog.open_store(sys.argv[1])._repr_html_())"
    assert python("-c", code, tmp_path / "s").count("<svg") == 6


def test_names_and_texts_are_escaped():
    store = graphlog.read_molecules({"smiles": ["CCO", "CCN"], EVIL: [0, 1]}, targets=[EVIL])
    data = labeled(IS_ALCOHOL, targets=(EVIL,))
    predictor = tuned(data, seeds=(0,))
    encoder = tiny_encoder()
    encoder.info["name"] = EVIL
    for shown in (store, predictor, predictor.report, encoder):
        html = shown._repr_html_()
        assert "script" not in Tags(html).seen
        assert "&lt;script&gt;" in html


def test_a_report_shows_every_row():
    report = classifier().report
    html = report._repr_html_()
    for row in report.rows:
        assert row.rule in html
    assert f"{100 * report.mean:.2f}" in html
