"""Which cells make a suite, what they are called, and what they share."""

from pathlib import Path
from typing import Any

import pytest

import graphlog
from benchmark_support import own_objective
from graphlog.benchmark.methods import ABLATED, COMPARED, LINEAR, SCALES, loss_weights, method_named
from graphlog.benchmark.plan import Request, plan_cells
from graphlog.errors import ConfigError
from graphlog.objectives import OBJECTIVES
from graphlog.objectives.graphlog import GraphLoG
from graphlog.objectives.graphlog_config import GraphLoGConfig
from graphlog.training.config import PretrainConfig
from graphlog_support import small_encoder


def stages(request: Request) -> dict[str, int]:
    found: dict[str, int] = {}
    for cell in plan_cells(request):
        found[cell.stage] = found.get(cell.stage, 0) + 1
    return found


def test_molecules_are_the_papers_rows_and_fingerprints():
    cells = plan_cells(Request("molecules", "small"))
    assert {c.method.name for c in cells} == {*COMPARED, "ecfp-rf", "ecfp-lr"}
    # seven pre-trained rows and the untrained one, three seeds; forests on five sets;
    # on hundreds of targets (toxcast) they have one seed
    assert stages(Request("molecules", "small")) == {
        "pretrain": 21,
        "finetune": 8 * 3 * 4,
        "probe": 8 * 3 * 8 + 5 * 3 + 8,
    }
    assert stages(Request("molecules", "paper")) == {
        "pretrain": 35,
        "finetune": 8 * 5 * 8,
        "probe": 8 * 5 * 8 + 7 * 5 + 1 + 8,
    }
    assert len({c.key for c in cells}) == len({c.config_hash for c in cells}) == len(cells)


def test_many_encoders_are_probed_on_few_data_sets_unless_asked():
    four = {"bbbp", "sider", "clintox", "bace"}
    for suite in ("backbones", "sensitivity"):
        assert {
            c.dataset for c in plan_cells(Request(suite, "small")) if c.stage == "probe"
        } == four
        assert (
            len({c.dataset for c in plan_cells(Request(suite, "paper")) if c.stage == "probe"}) == 8
        )
        assert {
            c.dataset
            for c in plan_cells(Request(suite, "small", datasets=["muv"]))
            if c.stage == "probe"
        } == {"muv"}
    assert (
        len({c.dataset for c in plan_cells(Request("ablation", "small")) if c.stage == "probe"})
        == 8
    )
    assert {
        c.dataset
        for c in plan_cells(Request("molecules", "small", methods=["ecfp-rf"], datasets=["muv"]))
    } == {"muv"}


def test_a_cell_waits_for_the_model_that_its_pretraining_makes():
    cells = plan_cells(Request("molecules", "smoke"))
    made = {c.model: c.method.name for c in cells if c.stage == "pretrain"}
    assert len(made) == 7 * 2
    for cell in cells:
        if cell.method.kind == "pretrained":
            assert made[cell.model] == cell.method.name
        else:
            assert cell.model == ""


def test_models_are_shared_between_suites():
    plain = {
        c.model
        for c in plan_cells(Request("molecules", "small"))
        if c.stage == "pretrain" and c.method.name == "graphcl"
    }
    backbones = {
        c.backbone: c.model
        for c in plan_cells(Request("backbones", "small", seeds=[0]))
        if c.method.name == "graphcl"
    }
    assert set(backbones) == {"gcn", "graphsage", "gat", "gin"}
    assert backbones["gin"] in plain
    assert backbones["gat"] not in plain
    ablation = plan_cells(Request("ablation", "small", seeds=[0]))
    ablated = {c.model for c in ablation if c.stage == "pretrain"}
    mapped = {
        c.model
        for c in plan_cells(Request("embedding-map", "small", seeds=[0]))
        if c.stage == "map"
    }
    assert len(ablated) == 7
    assert mapped < ablated


@pytest.mark.parametrize("suite", ["ablation", "sensitivity"])
@pytest.mark.parametrize("scale", ["small", "paper"])
def test_all_rows_have_a_local_phase_and_equal_steps(suite: str, scale: str):
    rows = [c for c in plan_cells(Request(suite, scale, seeds=[0])) if c.stage == "pretrain"]
    graphs, steps, fresh = 1_000_000, set[tuple[float, ...]](), set[bool]()
    for cell in rows:
        config = cell.pretraining
        assert config is not None
        objective = GraphLoG(GraphLoGConfig.parse(config.options), small_encoder())
        phases = objective.phases(config.epochs)
        assert phases[0].name == "local"
        clusters = config.options["global_weight"] > 0
        assert [p.name for p in phases] == (["local", "joint"] if clusters else ["local"])
        steps_an_epoch = graphs * cell.share / config.batch_size
        steps.add(
            tuple(p.epochs * steps_an_epoch for p in phases)
            if clusters
            else (config.epochs * steps_an_epoch,)
        )
        fresh.add(config.fresh_moments)
    assert len({sum(counts) for counts in steps}) == 1
    assert len({counts for counts in steps if len(counts) == 2}) == 1
    assert fresh == ({False} if suite == "ablation" else {True})


@pytest.mark.parametrize("suite", ["ablation", "sensitivity", "backbones"])
def test_rows_without_pretraining_stand_in_every_table(suite: str):
    plain = {c.key for c in plan_cells(Request("molecules", "small", seeds=[0]))}
    cells = plan_cells(Request(suite, "small", seeds=[0]))
    rows = {c.method.name: c.key for c in cells if c.backbone in ("gin", None) and not c.variant}
    assert {"untrained", "ecfp-rf", "ecfp-lr"} <= set(rows)
    assert {rows["untrained"], rows["ecfp-rf"], rows["ecfp-lr"]} <= plain  # computed once


def test_a_point_of_a_curve_at_the_usual_setting_is_the_same_work():
    usual = {
        c.config_hash: c.key
        for c in plan_cells(Request("molecules", "small", methods=["graphlog"], seeds=[0]))
    }
    curve = [
        c
        for c in plan_cells(Request("sensitivity", "small", seeds=[0]))
        if c.config_hash in usual and c.variant
    ]
    assert {c.variant for c in curve} == {(("depth", 3),), (("batch_size", 256),)}
    assert all(usual[c.config_hash] != c.key for c in curve)


def test_source_and_split_can_be_chosen(tmp_path: Path):
    usual = plan_cells(Request("biology", "small", seeds=[0], methods=["attrmasking"]))
    other = plan_cells(
        Request(
            "biology",
            "small",
            seeds=[0],
            methods=["attrmasking"],
            source="string-4932",
            split="network",
        )
    )
    assert {c.plan.changes for c in usual} == {""}
    assert {c.plan.changes for c in other} == {"source=string-4932 split=network"}
    assert not {c.config_hash for c in usual} & {c.config_hash for c in other}
    assert other[0].plan.command.endswith("--source string-4932 --split network")
    store = tmp_path / "store"
    graphlog.read_molecules(["CCO", "CCN"], store_path=store, schema="molecule")
    (cell,) = plan_cells(
        Request(
            "molecules", methods=["edgepred"], seeds=[0], stages=["pretrain"], source=str(store)
        )
    )
    assert cell.config["source"]["digest"] == graphlog.open_store(store).digest
    with pytest.raises(ConfigError, match="schema 'molecule', the suite needs 'protein'"):
        plan_cells(Request("biology", source=str(store)))


def test_a_setting_at_its_default_does_not_change_the_hash(monkeypatch: pytest.MonkeyPatch):
    before = [c.config_hash for c in plan_cells(Request("molecules", "smoke"))]

    class Later(PretrainConfig):
        newcomer: int = 3

    def resolved(*args: Any, **kwargs: Any) -> PretrainConfig:
        from graphlog.training.config import resolve_config

        return Later.model_validate(resolve_config(*args, **kwargs).model_dump())

    monkeypatch.setattr("graphlog.benchmark.cells.resolve_config", resolved)
    cells = plan_cells(Request("molecules", "smoke"))
    assert [c.config_hash for c in cells] == before
    assert any(c.config.get("pretrain", {}).get("newcomer") == 3 for c in cells)


def test_an_option_that_is_new_does_not_change_the_hash(monkeypatch: pytest.MonkeyPatch):
    request = Request("molecules", "small", methods=["contextpred"], seeds=[0])
    before = [c.config_hash for c in plan_cells(request)]
    kind = OBJECTIVES["contextpred"]

    class Later(kind.Config):
        newcomer: int = 3

    monkeypatch.setattr(kind, "Config", Later)
    cells = plan_cells(request)
    assert [c.config_hash for c in cells] == before
    assert cells[0].config["pretrain"]["options"]["newcomer"] == 3
    [cell] = plan_cells(
        Request("biology", "small", methods=["contextpred"], seeds=[0], stages=["pretrain"])
    )
    assert cell.config["pretrain"]["options"]["substructure_at"] == "center"


def test_what_decides_the_outcome_changes_the_hash():
    usual = {c.config_hash for c in plan_cells(Request("molecules", "smoke", methods=["graphlog"]))}
    for changed in (
        {"precision": "bf16"},
        {"scale": "small"},
        {"backbones": ["gat"]},
        {"seeds": [7]},
    ):
        other = plan_cells(
            Request("molecules", **{"scale": "smoke", "methods": ["graphlog"], **changed})
        )
        assert not usual & {c.config_hash for c in other}, changed
    same = plan_cells(Request("molecules", "smoke", methods=["graphlog"], device="cpu"))
    assert {c.config_hash for c in same} == usual


@pytest.mark.parametrize("losses", ABLATED)
def test_ablation_leaves_the_losses_it_is_named_by(losses: str):
    cell = next(
        c for c in plan_cells(Request("ablation", "smoke")) if c.variant == (("losses", losses),)
    )
    assert cell.pretraining is not None
    options = cell.pretraining.options
    left = {name for name in ("subgraph", "graph", "global") if options[f"{name}_weight"] > 0}
    assert left == set(losses.split("+"))
    assert options["attribute_weight"] == 0
    assert options["descriptor_weight"] == 0
    assert len(loss_weights(losses)) == 5 - len(left)


def test_biology_is_on_proteins_with_switches_of_its_own():
    cells = plan_cells(Request("biology", "smoke", seeds=[0]))
    assert {c.plan.domain for c in cells} == {"protein"}
    assert {c.method.name for c in cells} == {*COMPARED, LINEAR}
    assert {
        c.pretraining.recipe for c in cells if c.pretraining and c.method.name == "contextpred"
    } == {"biology"}
    assert {c.plan.domain for c in plan_cells(Request("ablation", "smoke", domain="protein"))} == {
        "protein"
    }
    assert {
        c.plan.domain for c in plan_cells(Request("backbones", "smoke", datasets=["worm-go40"]))
    } == {"protein"}


@pytest.mark.parametrize(
    ("choices", "words"),
    [
        ({"suite": "molcules"}, "did you mean 'molecules'"),
        ({"scale": "smal"}, "did you mean 'small'"),
        ({"methods": ["graphlgo"]}, "did you mean 'graphlog'"),
        ({"datasets": ["bbp"]}, "did you mean 'bbbp'"),
        ({"datasets": ["zinc250k"]}, "has no labels"),
        ({"backbones": ["ginn"]}, "did you mean 'gin'"),
        ({"stages": ["finetun"]}, "did you mean 'finetune'"),
        ({"domain": "proteins"}, "did you mean 'protein'"),
        ({"suite": "biology", "datasets": ["bbbp"]}, "choose one"),
        ({"suite": "ablation", "methods": ["graphcl"]}, "leave out `methods`"),
        ({"seeds": [-1]}, "from 0"),
        ({"split": "scafold"}, "did you mean 'scaffold'"),
        ({"source": "zinc250"}, "did you mean 'zinc250k'"),
        ({"source": "string-6239"}, "unknown molecule data set"),
    ],
)
def test_what_does_not_exist_is_refused_with_the_nearest_name(choices: dict[str, Any], words: str):
    with pytest.raises(ConfigError, match=words):
        plan_cells(Request(**{"suite": "molecules", "scale": "smoke", **choices}))


def test_an_objective_of_ones_own_is_a_method_by_one_line(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(OBJECTIVES, "degree-pred", own_objective().DegreePred)  # the one line
    assert method_named("degree-pred").kind == "pretrained"
    cells = plan_cells(Request("molecules", "smoke", methods=["degree-pred"], seeds=[0]))
    assert [c.stage for c in cells] == ["pretrain", "finetune", "probe"]
    assert "degree-pred" in {c.method.name for c in plan_cells(Request("speed", "smoke"))}
    with pytest.raises(ConfigError, match="did you mean 'degree-pred'"):
        method_named("degre-pred")


def test_every_scale_names_data_sets_that_exist():
    for name, scale in SCALES.items():
        for domain in scale.domains:
            suite = "molecules" if domain == "molecule" else "biology"
            assert plan_cells(Request(suite, name))


def test_stages_are_timed_once_a_seed_where_graphlog_is_timed_under_gin():
    def seeds(**choices: Any) -> list[int | None]:
        cells = plan_cells(Request("speed", "smoke", **choices))
        return [c.seed for c in cells if c.stage == "stage-speed"]

    assert seeds() == seeds(domain="protein") == [0, 1]
    assert seeds(methods=["attrmasking"]) == seeds(backbones=["gcn"]) == []
    several = plan_cells(Request("speed", "smoke", methods=["graphlog", "attrmasking"]))
    alone = plan_cells(Request("speed", "smoke", methods=["graphlog"]))
    keys = [{c.key for c in cells if c.stage == "stage-speed"} for cells in (several, alone)]
    assert keys[0] == keys[1]  # what else is timed does not matter
