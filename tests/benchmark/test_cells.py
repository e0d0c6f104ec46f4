"""Which cells make a suite, what they are called, and what they share."""

import hashlib
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import graphlog
from encoder_support import small_encoder
from graphlog.benchmark import Request
from graphlog.benchmark.cells import PAPER, SCALES, SUITES, plan_cells
from graphlog.benchmark.stages import given_folds
from graphlog.datasets import DATASETS
from graphlog.errors import ConfigError, ModelFileError
from graphlog.objectives import OBJECTIVES
from graphlog.objectives.graphlog import GraphLoG, GraphLoGConfig


def stages(request: Request) -> dict[str, int]:
    return dict(Counter(cell.stage for cell in plan_cells(request)))


def test_molecules_are_the_papers_rows_and_fingerprints():
    cells = plan_cells(Request("molecules", "small"))
    assert {c.method.name for c in cells} == {*PAPER["table_1"]["rows"], "ecfp-rf", "ecfp-lr"}
    # seven pre-trained rows and the untrained one, three seeds; forests on five sets;
    # on hundreds of targets (toxcast) they have one seed
    small = {"pretrain": 21, "finetune": 8 * 3 * 4, "probe": 8 * 3 * 8 + 5 * 3 + 8}
    assert stages(Request("molecules", "small")) == small
    paper = {"pretrain": 35, "finetune": 8 * 5 * 8, "probe": 8 * 5 * 8 + 7 * 5 + 1 + 8}
    assert stages(Request("molecules", "paper")) == paper
    assert len({c.title for c in cells}) == len({c.hash for c in cells}) == len(cells)


@pytest.mark.parametrize(
    ("suite", "count"), [("backbones", 4), ("sensitivity", 4), ("ablation", 8)]
)
def test_many_encoders_are_probed_on_few_data_sets_unless_asked(suite: str, count: int):
    def probed(scale: str, **choices: Any) -> set[str]:
        return {
            c.dataset for c in plan_cells(Request(suite, scale, **choices)) if c.stage == "probe"
        }

    assert len(probed("small")) == count
    assert len(probed("paper")) == 8
    assert probed("small", datasets=["muv"]) == {"muv"}


def test_every_suite_has_cells_at_every_scale_and_names_of_their_own():
    for name, suite in SUITES.items():
        for scale in SCALES:
            for domain in suite.domains:
                cells = plan_cells(Request(name, scale, domain=domain))
                assert {c.stage for c in cells} == set(suite.stages)
                assert len({tuple(c.labels.values()) for c in cells}) == len(cells)
                assert len({c.table for c in cells}) == 1


def test_models_are_shared_between_suites():
    def models(**choices: Any) -> dict[str, str]:
        cells = plan_cells(Request(scale="small", seeds=[0], **choices))
        return {c.backbone + c.variant: c.model for c in cells if c.method.name.startswith("graph")}

    plain = models(suite="molecules", methods=["graphcl"])["gin"]
    backbones = models(suite="backbones", methods=["graphcl"])
    assert set(backbones) == {"gcn", "graphsage", "gat", "gin"}
    assert backbones["gin"] == plain != backbones["gat"]
    ablation, maps = models(suite="ablation"), models(suite="embedding-map")
    assert len(set(ablation.values())) == 7
    assert maps.items() < ablation.items()


@pytest.mark.parametrize("suite", ["ablation", "sensitivity"])
@pytest.mark.parametrize("scale", ["small", "paper"])
def test_all_rows_have_a_local_phase_and_equal_steps(suite: str, scale: str):
    rows = [c for c in plan_cells(Request(suite, scale, seeds=[0])) if c.stage == "pretrain"]
    graphs, steps, fresh = 1_000_000, set[tuple[float, ...]](), set[bool]()
    for cell in rows:
        config = cell.config
        objective = GraphLoG(GraphLoGConfig.parse(config.options), small_encoder())
        phases = objective.phases(config.epochs)
        clusters = config.options["global_weight"] > 0
        assert [p.name for p in phases] == (["local", "joint"] if clusters else ["local"])
        epoch = graphs * cell.share / config.batch_size
        steps.add(tuple(p.epochs * epoch for p in phases) if clusters else (config.epochs * epoch,))
        fresh.add(config.fresh_moments)
    assert len({sum(counts) for counts in steps}) == 1
    assert len({counts for counts in steps if len(counts) == 2}) == 1
    assert fresh == ({False} if suite == "ablation" else {True})


@pytest.mark.parametrize("suite", ["ablation", "sensitivity", "backbones"])
def test_what_another_suite_has_computed_is_the_same_work(suite: str):
    plain = {c.hash for c in plan_cells(Request("molecules", "small", seeds=[0]))}
    cells = plan_cells(Request(suite, "small", seeds=[0]))
    rows = {c.method.name: c.hash for c in cells if c.backbone in ("gin", "") and not c.variant}
    assert {rows["untrained"], rows["ecfp-rf"], rows["ecfp-lr"]} <= plain
    usual = {"depth=3", "batch_size=256"} if suite == "sensitivity" else set()
    assert {c.variant for c in cells if c.hash in plain} - {""} == usual


def test_source_and_split_can_be_chosen(tmp_path: Path):
    choices: dict[str, Any] = {"seeds": [0], "methods": ["attrmasking"]}
    usual = plan_cells(Request("biology", "small", **choices))
    other = plan_cells(
        Request("biology", "small", source="string-4932", split="network", **choices)
    )
    assert {c.setup.source for c in other} == {"string-4932"}
    assert {c.split for c in other if c.dataset} == {"network"}
    assert not {c.hash for c in usual} & {c.hash for c in other}
    graphs = graphlog.read_molecules(
        ["CCO", "CCN"], schema="molecule", store_path=tmp_path / "store"
    )
    (cell,) = plan_cells(
        Request("molecules", source=str(tmp_path / "store"), stages=["pretrain"], **choices)
    )
    assert cell.origin["source"]["digest"] == graphs.digest
    with pytest.raises(ConfigError, match="schema 'molecule'"):
        plan_cells(Request("biology", source=str(tmp_path / "store")))


@pytest.mark.parametrize("schema", ["molecule", "molecule-cip"])
def test_a_suite_of_a_shipped_model_takes_graphs_of_its_schema(schema: str, tmp_path: Path):
    graphlog.read_molecules(["CCO", "CCN"], schema=schema, store_path=tmp_path / "store")
    request = Request("moleculenet", source=str(tmp_path / "store"), seeds=[0])
    if schema == graphlog.load("graphlog-mol").schema.name:
        assert plan_cells(request)
    else:
        with pytest.raises(ConfigError, match="the suite needs 'molecule-cip'"):
            plan_cells(request)


def test_a_setting_that_is_new_does_not_change_the_hash(monkeypatch: pytest.MonkeyPatch):
    request = Request("molecules", "small", methods=["contextpred"], seeds=[0])
    before = [c.hash for c in plan_cells(request)]
    kind = OBJECTIVES["contextpred"]

    class Later(kind.Config):
        newcomer: int = 3

    monkeypatch.setattr(kind, "Config", Later)
    cells = plan_cells(request)
    assert [c.hash for c in cells] == before
    assert cells[0].config.options["newcomer"] == 3


def test_what_decides_the_outcome_changes_the_hash():
    usual = {c.hash for c in plan_cells(Request("molecules", "smoke", methods=["graphlog"]))}
    for changed in (
        {"precision": "bf16"},
        {"scale": "small"},
        {"backbones": ["gat"]},
        {"seeds": [7]},
    ):
        other = Request("molecules", **{"scale": "smoke", "methods": ["graphlog"], **changed})
        assert not usual & {c.hash for c in plan_cells(other)}, changed
    same = plan_cells(Request("molecules", "smoke", methods=["graphlog"], device="cpu"))
    assert {c.hash for c in same} == usual


def test_ablation_leaves_the_losses_it_is_named_by():
    rows = [c for c in plan_cells(Request("ablation", "smoke")) if c.variant]
    for cell in rows:
        weights = {k for k, v in cell.config.options.items() if k.endswith("_weight") and v}
        named = cell.variant.removeprefix("losses=").split("+")
        assert weights == {f"{loss}_weight" for loss in named}
    named = {c.variant.removeprefix("losses=") for c in rows}
    assert named == set(SUITES["ablation"].losses) == set(PAPER["table_4"]["rows"])


def test_proteins_have_tables_and_switches_of_their_own():
    cells = plan_cells(Request("biology", "smoke", seeds=[0]))
    assert {c.domain for c in cells} == {"protein"}
    assert {c.method.name for c in cells} == {*PAPER["table_2"]["rows"], "ecfp-lr"}
    context = [c for c in cells if c.method.name == "contextpred"]
    assert {c.config.recipe for c in context} == {"biology"}
    for choices in ({"domain": "protein"}, {"datasets": ["worm-go40"]}):
        assert {c.table for c in plan_cells(Request("ablation", "smoke", **choices))} == {
            "ablation-protein"
        }


@pytest.mark.parametrize(
    ("choices", "words"),
    [
        ({"suite": "molecule"}, "did you mean 'molecules'"),
        ({"scale": "smal"}, "did you mean 'small'"),
        ({"methods": ["graphlgo"]}, "did you mean 'graphlog'"),
        ({"datasets": ["bbp"]}, "did you mean 'bbbp'"),
        ({"datasets": ["zinc250k"]}, "unknown labeled data set"),
        ({"backbones": ["ginn"]}, "did you mean 'gin'"),
        ({"stages": ["finetun"]}, "did you mean 'finetune'"),
        ({"domain": "proteins"}, "did you mean 'protein'"),
        ({"suite": "biology", "datasets": ["bbbp"]}, "choose one"),
        ({"suite": "ablation", "methods": ["graphcl"]}, "leave out `methods`"),
        ({"seeds": [-1]}, "from 0"),
        ({"split": "scafold"}, "did you mean 'scaffold'"),
        ({"source": "zinc250"}, "did you mean 'zinc250k'"),
        ({"source": "string-6239"}, "unknown molecule data set"),
        ({"suite": "biology", "source": "string-623"}, "did you mean 'string-6239'"),
    ],
)
def test_what_does_not_exist_is_refused_with_the_nearest_name(choices: dict[str, Any], words: str):
    with pytest.raises(ConfigError, match=words):
        plan_cells(Request(**{"suite": "molecules", "scale": "smoke", **choices}))


def test_adme_compares_a_shipped_model_with_its_own_network_untrained_on_both_splits():
    cells = plan_cells(Request("adme", "smoke", seeds=[0]))
    model = graphlog.load("graphlog-mol")
    assert {c.split for c in cells} == {"given", "scaffold"}
    assert len({c.dataset for c in cells}) == 6
    encoders = [c.config for c in cells if c.pretraining]
    assert all(config.encoder == model.config for config in encoders)
    assert {config.schema for config in encoders} == {model.schema.name}
    assert all(c.settings["heads"] == ["linear", "kernel", "boosting"] for c in cells)
    assert {c.split for c in plan_cells(Request("adme", "smoke", split="given"))} == {"given"}
    for suite, method in (
        ("molecules", "graphlog-mol"),
        ("molecules", "ecfp4"),
        ("adme", "ecfp-lr"),
    ):
        with pytest.raises(ConfigError, match=f"method '{method}' is"):
            plan_cells(Request(suite, "smoke", methods=[method]))


def test_a_model_file_is_a_method_and_its_contents_decide(tmp_path: Path):
    for number, schema in enumerate(["molecule-cip", "molecule-cip", "molecule"]):
        graphlog.random_encoder(schema=schema, seed=number).save(tmp_path / f"{number}.safetensors")
    first, second, other = (str(path) for path in sorted(tmp_path.iterdir()))
    cells = plan_cells(Request("adme", "smoke", methods=[first, second], datasets=["hlm"]))
    assert {c.method.name for c in cells} == {first, second}
    assert len({c.hash for c in cells}) == len(cells) == 4
    Path(second).write_bytes(Path(first).read_bytes())
    assert len({c.hash for c in plan_cells(cells[0].request)}) == 2
    with pytest.raises(ModelFileError, match="no such model file"):
        plan_cells(Request("adme", "smoke", methods=[f"{first}x"]))
    with pytest.raises(ConfigError, match="schema 'molecule', the suite has 'molecule-cip'"):
        plan_cells(Request("adme", "smoke", methods=[other]))


def test_a_saved_model_is_the_same_work_whatever_the_seeds():
    for seeds in ([0], [3, 0]):
        request = Request("adme", methods=["graphlog-mol"], datasets=["hlm"], seeds=seeds)
        cells = plan_cells(request)
        assert [(c.split, c.config.seed) for c in cells] == [("given", 0), ("scaffold", 0)]


def test_given_folds_are_those_of_the_column(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    rows = [f"{'C' * (k + 1)},{k},{'test' if k % 5 == 0 else 'train'}" for k in range(50)]
    path = tmp_path / "chem" / "adme" / "toy.csv"
    path.parent.mkdir(parents=True)
    path.write_text("\n".join(["smiles,toy,split", *rows]))
    spec = DATASETS["hlm"].updated({"name": "toy", "path": "chem/adme/toy.csv", "tasks": ("toy",)})
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    monkeypatch.setitem(DATASETS, "toy", spec.updated({"sha256": digest}))
    monkeypatch.setenv("GRAPHLOG_MIRROR", str(tmp_path))
    folds = given_folds("toy")
    assert folds.test.tolist() == list(range(0, 50, 5))
    assert sorted([*folds.train, *folds.valid, *folds.test]) == list(range(50))
    assert len(folds.valid) == 4
