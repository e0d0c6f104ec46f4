"""Where data sets come from: cache, mirror, public address; checked, whole or not at all."""

import gzip
import http.server
import re
import threading
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import graphlog.datasets.catalogue as module
from cli_support import left_in
from graphlog.datasets import DATASETS, DatasetSpec
from graphlog.datasets.catalogue import data_root, download
from graphlog.domains import DOMAINS
from graphlog.domains.records import TableReading, hash_smiles
from graphlog.errors import DataError, GraphLoGError
from graphlog.files import hash_file
from graphlog.inputs import resolve

MOLECULES = DOMAINS["molecule"]
fetch = MOLECULES.fetch
PUBLIC = b"id,smiles,measured log solubility in mols per litre\n1,CCO,0.5\n2,C,1.5\n"


class _Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *args: object) -> None:
        pass


@contextmanager
def serving(handler: Any) -> Iterator[str]:
    """Answer requests on this machine; yields the address."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.fixture
def served(tmp_path: Path) -> Iterator[tuple[str, Path]]:
    folder = tmp_path / "served"
    folder.mkdir()
    with serving(partial(_Quiet, directory=str(folder))) as url:
        yield url, folder


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv("GRAPHLOG_MIRROR", raising=False)
    monkeypatch.setenv("GRAPHLOG_DATA", str(tmp_path / "cache"))
    return tmp_path / "cache"


def place(path: Path, content: bytes) -> Path:
    path.parent.mkdir(parents=True)
    path.write_bytes(content)
    return path


def changed(name: str, url: str, smiles: list[str]) -> DatasetSpec:
    """A data set of the catalogue at another address, with other molecules."""
    spec = DATASETS[name]
    details = {**spec.details, "sha256_smiles": [hash_smiles(smiles)]}
    return spec.updated({"url": url, "details": details, "sha256": "0" * 64})


@pytest.fixture
def public(served: tuple[str, Path]) -> Path:
    path = served[1] / "delaney.csv"
    path.write_bytes(PUBLIC)
    return path


@pytest.fixture
def esol(served: tuple[str, Path], public: Path, cache: Path) -> DatasetSpec:
    """The data set that is this file, which is not in the cache."""
    return changed("esol", f"{served[0]}/{public.name}", ["CCO", "C"])


def nowhere(name: str = "esol") -> DatasetSpec:
    """A data set at an address where no one answers."""
    return changed(name, "http://127.0.0.1:9/delaney.csv", ["CCO", "C"])


def test_the_data_root():
    assert data_root("here") == Path("here")


def test_a_public_file_is_fetched_once_and_read_under_our_names(
    esol: DatasetSpec, public: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
):
    assert MOLECULES.find(esol) is None
    path = fetch(esol)
    assert path == cache / "public" / "esol.csv"
    public.unlink()
    assert fetch(esol) == path
    monkeypatch.setitem(DATASETS, "esol", esol)
    with MOLECULES.open(resolve("esol"), TableReading()) as table:
        ((column, task),) = table.tasks.items()
        assert (column, task) == ("measured log solubility in mols per litre", "logSolubility")
        assert [row.fields[column] for row in table.rows] == ["0.5", "1.5"]


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (PUBLIC.replace(b"CCO", b"CCN"), "SHA-256 differs"),
        (b"\n<!DOCTYPE html><p>Sign in", "a web page"),
    ],
)
def test_another_content_is_refused_and_not_kept(
    content: bytes, why: str, esol: DatasetSpec, public: Path, cache: Path
):
    public.write_bytes(content)
    with pytest.raises(DataError, match=f"not the expected one .*{why}"):
        fetch(esol)
    assert list((cache / "public").iterdir()) == []


@pytest.mark.parametrize("name", ["freesolv", "worm-go40"])  # the second has no public address
def test_a_mirror_may_be_an_address(
    name: str, served, cache: Path, monkeypatch: pytest.MonkeyPatch, mirror: Path
):
    (url, folder), spec = served, DATASETS[name]
    place(folder / "sub" / spec.path, (mirror / spec.path).read_bytes())
    monkeypatch.setenv("GRAPHLOG_MIRROR", f"{url}/sub/")
    assert fetch(spec) == cache / spec.path
    monkeypatch.delenv("GRAPHLOG_MIRROR")
    assert fetch(spec) == cache / spec.path


def test_a_mirror_with_another_file_says_so(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
):
    place(tmp_path / "mirror" / DATASETS["bbbp"].path, gzip.compress(b"smiles,p_np\nC,1\n"))
    monkeypatch.setenv("GRAPHLOG_MIRROR", str(tmp_path / "mirror"))
    with pytest.raises(DataError, match="is not the file of data set 'bbbp'"):
        fetch(DATASETS["bbbp"])


def test_a_damaged_cache_is_fetched_anew(esol: DatasetSpec, cache: Path):
    path = place(cache / "public" / "esol.csv", PUBLIC[:30])
    assert fetch(esol).read_bytes() == PUBLIC
    path.write_bytes(PUBLIC.replace(b"1.5", b"9.9"))  # the molecules are those that are pinned
    assert MOLECULES.find(esol) is None
    assert fetch(esol).read_bytes() == PUBLIC
    path.with_name("esol.csv.sha256").write_bytes(b"\xff")
    assert MOLECULES.find(esol) is None


def test_no_network_is_one_line_that_says_what_to_do(cache: Path):
    told = "chem/downstream/esol.csv.gz below $GRAPHLOG_MIRROR, or use esol (with labels) or nci5k"
    with pytest.raises(DataError, match=re.escape(told)):
        fetch(nowhere())


@pytest.mark.parametrize("name", ["esol", "worm-go40"])  # the second has no public address
def test_a_mirror_that_lacks_the_file_is_named(
    name: str, tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
):
    spec, mirror = DATASETS[name], tmp_path / "mirror"
    spec = spec if spec.url is None else nowhere(name)
    monkeypatch.setenv("GRAPHLOG_MIRROR", str(mirror))
    with pytest.raises(DataError, match=rf"\$GRAPHLOG_MIRROR \({mirror}, which is no folder\)"):
        fetch(spec)
    mirror.mkdir()
    with pytest.raises(DataError, match=rf"\({mirror}, which has no {spec.path}\)"):
        fetch(spec)


def test_what_a_killed_download_left_goes_with_the_next(served, tmp_path: Path):
    url, folder = served
    (folder / "a").write_bytes(b"whole")
    place(tmp_path / "x" / ".a.partial-4711-0123abcd" / "a", b"wh")
    download(f"{url}/a", tmp_path / "x" / "a", lambda path: path.read_bytes() == b"whole")
    assert left_in(tmp_path / "x") == {"a"}


def test_a_cache_that_cannot_be_written_is_not_blamed_on_the_network(
    esol: DatasetSpec, cache: Path
):
    cache.write_text("a file where the folder should be")
    with pytest.raises(GraphLoGError, match="cannot write"):
        fetch(esol)


def test_the_zinc_sets_out_of_the_published_package(
    served, cache: Path, monkeypatch: pytest.MonkeyPatch
):
    url, folder = served
    with zipfile.ZipFile(folder / "a.whl", "w") as wheel:
        for part, names in (("train", "CC\nCCO"), ("test", "N"), ("test_scaffolds", "O")):
            packed = gzip.compress(f"SMILES,SPLIT\n{names}\n".encode())
            wheel.writestr(f"moses/dataset/data/{part}.csv.gz", packed)
    monkeypatch.setattr(module, "_MOSES_SHA256", hash_file(folder / "a.whl"))
    whole = changed("zinc2m", f"{url}/a.whl", ["CC", "CCO", "N", "O"])
    assert gzip.decompress(fetch(whole).read_bytes()) == b"CC\nCCO\nN\nO\n"
    monkeypatch.setitem(module._MOSES_SAMPLES, "zinc10k", 2)
    sample = changed("zinc10k", f"{url}/a.whl", ["CC", "N"])
    (folder / "a.whl").unlink()  # the package is here already
    assert gzip.decompress(fetch(sample).read_bytes()) == b"CC\nN\n"


class _Hostile(_Quiet):
    """Redirects to where its path says, or ends early, or never."""

    def do_GET(self):
        if self.path.startswith("/to/"):
            self.send_response(302)
            self.send_header("Location", self.path.removeprefix("/to/"))
            self.end_headers()
            return
        self.send_response(200)
        if self.path == "/short":
            self.send_header("Content-Length", "2000")
        self.end_headers()
        if self.path == "/short":
            self.wfile.write(b"x" * 1500)
            return
        with suppress(OSError):
            while True:
                self.wfile.write(b"x" * 4096)


@pytest.mark.parametrize("to", ["ftp://127.0.0.1:1/x", "FTP://127.0.0.1:1/x", "file:///etc/passwd"])
def test_redirects_lead_to_web_addresses_alone(to: str, tmp_path: Path):
    with serving(_Hostile) as url, pytest.raises(OSError, match=r"not a web address|not allowed"):
        download(f"{url}/to/{to}", tmp_path / "a", lambda _: True)
    assert not (tmp_path / "a").exists()


def test_a_download_without_end_is_given_up(cache: Path, monkeypatch: pytest.MonkeyPatch):
    """Nor is it blamed on the network."""
    monkeypatch.setattr(module, "_LARGEST", 1 << 20)
    told = r"^http.*: the download has more than 1,048,576 bytes"
    with serving(_Hostile) as url:
        monkeypatch.setenv("GRAPHLOG_MIRROR", url)
        with pytest.raises(DataError, match=told):
            fetch(DATASETS["bbbp"])
    assert [path for path in cache.rglob("*") if path.is_file()] == []


@pytest.mark.parametrize("mirror", ["http://[::1", "http://127.0.0.1:99999999"])
def test_a_mirror_that_is_no_address(mirror: str, cache: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("GRAPHLOG_MIRROR", mirror)
    with pytest.raises(DataError, match="cannot be fetched from"):
        fetch(DATASETS["bbbp"])


def test_a_download_that_ends_early_says_so(tmp_path: Path):
    told = "ended early, after 1,500 of 2,000 bytes"
    with serving(_Hostile) as url, pytest.raises(DataError, match=told):
        download(f"{url}/short", tmp_path / "a", lambda _: False)
