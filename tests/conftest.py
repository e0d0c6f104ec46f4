"""What every test gets: checked shapes and types, a fixed seed, one thread, real data if any."""

import gc
import os
import random
import zlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import hypothesis
import numpy as np
import pytest
import torch

import typecheck
from graphlog.errors import GraphLoGError

gc.disable()  # until all is imported, of which nothing is garbage

ROOT = Path(__file__).resolve().parent.parent
SIBLING = ROOT.parent / "shared" / "data"

# where arrays are; checking the rest as well would cost every process seconds of import
CHECKED = ("ops", "prototypes", "views", "objectives", "encoders", "data", "domains", "downstream")
typecheck.check_imports(*(f"graphlog.{name}" for name in CHECKED))
torch.set_num_threads(1)
os.environ["PYTHONPATH"] = os.pathsep.join(
    [str(ROOT / "src"), *filter(None, [os.environ.get("PYTHONPATH")])]
)
if "GRAPHLOG_MIRROR" not in os.environ and SIBLING.is_dir():
    os.environ["GRAPHLOG_MIRROR"] = str(SIBLING)

# Derandomized, so that a run says the same thing twice; the fuzzers that want luck pass their own
# settings.
hypothesis.settings.register_profile(
    "house",
    deadline=None,
    derandomize=True,
    max_examples=25,
    suppress_health_check=[
        hypothesis.HealthCheck.function_scoped_fixture,
        hypothesis.HealthCheck.too_slow,
    ],
)
hypothesis.settings.load_profile("house")

if TYPE_CHECKING:
    from cli_support import Cli
    from graphlog.data.store import GraphStore

TINY_SMILES = r"""
    C CO CCO CC(=O)O c1ccccc1 Cc1ccccc1O CC(C)Cc1ccc(cc1)C(C)C(=O)O CC(=O)Oc1ccccc1C(=O)O
    CN1C=NC2=C1C(=O)N(C(=O)N2C)C C[C@H](N)C(=O)O C[C@@H](N)C(=O)O F/C=C/F F/C=C\F [Na+].[Cl-]
    [He] C#N O=C(O)c1ccncc1 c1ccc2ccccc2c1 C1CCCCC1 C1CC2CCC1C2 CCN(CC)CC CS(=O)(=O)c1ccccc1
    Clc1ccccc1Cl BrCCBr NCC(=O)NCC(=O)O OC[C@H]1OC(O)[C@H](O)[C@@H](O)[C@@H]1O
    CC1(C)SC2C(NC1=O)C(=O)N2 O=[N+]([O-])c1ccccc1 CCCCCCCCCC C1=CC=CN1 c1ccsc1 c1ccoc1
""".split()


def pytest_collection_finish() -> None:
    gc.freeze()
    gc.enable()


@pytest.fixture(autouse=True)
def _seeded(request: pytest.FixtureRequest) -> None:
    """Seed all randomness from the test's own name, so that order and workers do not matter."""
    typecheck.called.clear()
    seed = zlib.crc32(request.node.nodeid.encode())
    random.seed(seed)
    np.random.seed(seed)
    # not `torch.manual_seed`, which notes a stack trace for each kind of device that is absent
    torch.default_generator.manual_seed(seed)
    if torch.cuda.is_available():
        torch.cuda.manual_seed(seed)


@pytest.fixture(autouse=True, scope="session")
def _own_cache(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Keep downloads and caches of the tests out of the user's folders."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GRAPHLOG_DATA", str(tmp_path_factory.mktemp("graphlog-data")))
        yield


@pytest.fixture(autouse=True, scope="session")
def _errors_are_one_line() -> Any:
    """Whoever raises an error that a user can mend, and why, says it in one line."""
    plain = GraphLoGError.__init__

    def checked(self: GraphLoGError, *words: Any, **more: Any) -> None:
        plain(self, *words, **more)
        assert "\n" not in str(self), str(self)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(GraphLoGError, "__init__", checked)
        yield


@pytest.fixture(autouse=True, scope="session")
def _quick_baselines() -> Any:
    """Grow 20 trees, not 300, and look at 4 batches, not 20: the place in a report matters."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("graphlog.downstream.linear.TREES", 20)
        patch.setattr("graphlog.encoders.encoder.BATCHES", 4)
        yield


def _real(path: Path, what: str) -> Path:
    if path.is_dir():
        return path
    reason = f"{what} not found: set GRAPHLOG_MIRROR to the folder that holds the data sets"
    if os.environ.get("CI"):
        pytest.fail(reason)
    pytest.skip(reason)


@pytest.fixture(scope="session")
def mirror() -> Path:
    """Folder of the real data sets (``chem/downstream/bbbp.csv.gz``, ...); required in CI."""
    return _real(Path(os.environ.get("GRAPHLOG_MIRROR") or "no mirror"), "real data")


@pytest.fixture(scope="session")
def golden(mirror: Path) -> Path:
    """Folder of the numbers recorded from the reference code, beside the mirror."""
    return _real(mirror.parent / "golden", "golden values")


@pytest.fixture(scope="session")
def tiny_smiles() -> list[str]:
    """32 small molecules: chirality, salts, a lone atom, aromatic rings, charges, stereo bonds."""
    return list(TINY_SMILES)


@pytest.fixture(scope="session")
def nci() -> list[str]:
    """5,000 molecules of NCI, which come with RDKit."""
    from graphlog.domains.molecule import rdkit_file

    text = rdkit_file("NCI/first_5K.smi").read_text()
    return [line.split()[0] for line in text.splitlines()]


@pytest.fixture(scope="session")
def tiny_store(tiny_smiles: list[str]) -> "GraphStore":
    """The molecules of ``tiny_smiles`` as a store of the ``molecule`` schema."""
    from graphlog.domains.molecule import MOLECULE
    from graphlog.inputs import read

    return read(tiny_smiles, MOLECULE, on_error="fail", keep_texts=False)


@pytest.fixture
def cli(
    request: pytest.FixtureRequest,
    capfd: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> "Cli":
    """The command in this process, run in the folder of the test."""
    from cli_support import Cli

    monkeypatch.chdir(tmp_path)
    return Cli(capfd, request)


@pytest.fixture
def coarse(monkeypatch: pytest.MonkeyPatch) -> None:
    """Draw with few dots: what is drawn matters, not how finely."""
    style = pytest.importorskip("graphlog.report.style")
    monkeypatch.setitem(style._STYLE, "savefig.dpi", 20)


@pytest.fixture
def blank(monkeypatch: pytest.MonkeyPatch) -> None:
    """Save figures with nothing on them: which files there are, and whose, is what matters."""
    figures = pytest.importorskip("matplotlib.figure").Figure
    save = figures.savefig

    def savefig(figure: Any, *words: Any, **more: Any) -> None:
        figure.clear()
        save(figure, *words, **more)

    monkeypatch.setattr(figures, "savefig", savefig)
