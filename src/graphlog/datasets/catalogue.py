"""The molecule data sets by name: the eight classification sets of the paper, five regression sets, pre-training sets."""

from typing import Any

from graphlog.datasets.base import DatasetSpec
from graphlog.datasets.catalogue_networks import GRAPHS, PROTEIN_SETS
from graphlog.errors import unknown_name

_DEEPCHEM = "https://deepchemdata.s3-us-west-1.amazonaws.com/datasets/"
_MOLSETS = "https://pypi.org/pypi/molsets/0.3.1/json"

_TOX21 = (
    *("NR-AR", "NR-AR-LBD", "NR-AhR", "NR-Aromatase", "NR-ER", "NR-ER-LBD", "NR-PPAR-gamma"),
    *("SR-ARE", "SR-ATAD5", "SR-HSE", "SR-MMP", "SR-p53"),
)
_MUV = tuple(
    f"MUV-{n}"
    for n in (466, 548, 600, 644, 652, 689, 692, 712, 713, 733, 737, 810, 832, 846, 852, 858, 859)
)
_QM8 = tuple(
    f"{quantity}-{method}"
    for method in ("CC2", "PBE0", "CAM")
    for quantity in ("E1", "E2", "f1", "f2")
)


def _moleculenet(name: str, file: str, description: str, **fields: Any) -> DatasetSpec:
    defaults: dict[str, Any] = {
        "task": "classification",
        "metric": "roc_auc",
        "licence": "MIT",
        "source": "MoleculeNet",
    }
    defaults |= {"num_tasks": len(fields.get("tasks", ()))}
    path = f"chem/downstream/{name}.csv.gz"
    return DatasetSpec(
        name=name, description=description, path=path, url=_DEEPCHEM + file, **(defaults | fields)
    )


def _regression(name: str, file: str, description: str, **fields: Any) -> DatasetSpec:
    return _moleculenet(
        name, file, description, **({"task": "regression", "metric": "rmse"} | fields)
    )


def _moses(name: str, size: str, description: str, **fields: Any) -> DatasetSpec:
    return DatasetSpec(
        name=name,
        description=description,
        path=f"chem/pretrain/zinc_moses_{size}.smi.gz",
        url=_MOLSETS,
        origin="molsets",
        licence="MIT",
        source="MOSES 0.3.1 (ZINC Clean Leads)",
        smiles_column=None,
        split="random",
        **fields,
    )


_CLASSIFICATION = (
    _moleculenet(
        "bbbp",
        "BBBP.csv",
        "blood-brain barrier penetration",
        rows=2039,
        tasks=("p_np",),
        public_tasks={"BBBP": "p_np"},
        canonical_split=True,
        sha256_file="65930ad240172cc74a46d97ca3a545139efc61922bdc24c4125005feedcd4389",
        sha256_smiles="1db0e593f5cda39623935e9bd79538cf4265e64530a93ac38b2378bdec36a1b1",
        sha256_public_smiles=("c3bec0a103e1f284bd70f80367e83edd7e0926ce0b62145b2aab0dcc547d4bd6",),
    ),
    _moleculenet(
        "tox21",
        "tox21.csv.gz",
        "toxicity on 12 targets; 17 % of labels missing",
        rows=7831,
        tasks=_TOX21,
        sha256_file="a8f5b4744c25cad36a06f28dd40e789541d6bd34bab93d32626393f974110941",
        sha256_smiles="fb13c9b03ef44147bfb5adfcc033963d9a3e79ab42ccb9cd3a9305c41d33ea74",
    ),
    _moleculenet(
        "toxcast",
        "toxcast_data.csv.gz",
        "617 toxicity assays; 71 % of labels missing",
        rows=8576,
        num_tasks=617,
        canonical_split=True,
        sha256_file="852ca9aaee6381c5048441c05d45584d85193bd7c68c3cd02a67445873dfc31b",
        sha256_smiles="13300af2c4ee9a40f33522cbfe79e847af948a75ac07ead5515ea43265221e56",
    ),
    _moleculenet(
        "sider",
        "sider.csv.gz",
        "side effects of drugs, 27 organ classes",
        rows=1427,
        num_tasks=27,
        sha256_file="ebf65c641eaaaf1702e39faaadde886bfc8c5245fa34c4a55087327dabddead7",
        sha256_smiles="49e47fd892ece87a27d7eeb43e5f1efa792ef248bfaa650243637cbb68103de3",
    ),
    _moleculenet(
        "clintox",
        "clintox.csv.gz",
        "approval and failure in clinical trials for toxicity",
        rows=1478,
        tasks=("FDA_APPROVED", "CT_TOX"),
        canonical_split=True,
        sha256_file="d1a199e599d1dc49009928a33f8be69807d65fbb783d06b840d7558d09681e79",
        sha256_smiles="f9963aa8ef9c925d7b49552a26caef276973f2729f0ca79d9ca3c2477478d1a9",
        sha256_public_smiles=("15f4ae792ddda2d19ac29eb22ae2f00214cf254c86916062fd76e9adaae48d9f",),
    ),
    _moleculenet(
        "muv",
        "muv.csv.gz",
        "virtual screening, 17 targets, 0.2 % positive; 84 % of labels missing",
        rows=93087,
        tasks=_MUV,
        sha256_file="7493abd5d2db4198fd0daa6b3c710fa4c31566463e2c58814ec088a05403b023",
        sha256_smiles="01e772e4f69e005f6efcd314f839e79606435550edf63ab3a7c760ec66215b11",
    ),
    _moleculenet(
        "hiv",
        "HIV.csv",
        "inhibition of HIV replication; 3.5 % positive",
        rows=41127,
        tasks=("HIV_active",),
        sha256_file="ecb7265aaf5e50e03e9aa0f4119c6dbc80ae9e17f7d6b22a066979d34e05b240",
        sha256_smiles="9d026d8ecd844190d9a627686d35f1ca0925db8c92a5d5ff95596d8c028755da",
    ),
    _moleculenet(
        "bace",
        "bace.csv",
        "inhibition of human beta-secretase 1",
        rows=1513,
        tasks=("Class",),
        licence="not stated",
        sha256_file="7e84effa37e4cba2bdd010789a802c45947b2104e001e004050943896c0738fb",
        sha256_smiles="12a893de0cb3b7ff174fb9ca7314534facfb8fbcfb8ef5e64a54449c9a7629cf",
    ),
)

_REGRESSION = (
    _regression(
        "esol",
        "delaney-processed.csv",
        "solubility in water, log mol/L",
        rows=1128,
        tasks=("logSolubility",),
        public_tasks={"measured log solubility in mols per litre": "logSolubility"},
        licence="not stated",
        sha256_file="7da8f574875ee35c74b50775aa675dbe4aebb86334929b590b26f286b3313620",
        sha256_smiles="54bbd73cebce847287ea092cd7a6439640532a65ab76c8b06976c662898faf60",
    ),
    _regression(
        "freesolv",
        "SAMPL.csv",
        "hydration free energy, kcal/mol",
        rows=642,
        tasks=("freesolv",),
        public_tasks={"expt": "freesolv"},
        licence="not stated",
        sha256_file="63b7b78153740bcfaa502f876a8c431e6d2306a3f00dd8741ee9b48316fc2f41",
        sha256_smiles="59d694b57744ffac976ef59c52281266a4bc1e13d756d202ea1872e25142b499",
    ),
    _regression(
        "lipophilicity",
        "Lipophilicity.csv",
        "octanol/water distribution, logD at pH 7.4",
        rows=4200,
        tasks=("lipo",),
        public_tasks={"exp": "lipo"},
        licence="not stated",
        sha256_file="4f213c2d24f21071c37e92faf9392c4c3084c3b59fa625fe3aa770c0916956ac",
        sha256_smiles="f8f9be07c2df359899317d490b3ff34af74a9f3abdaecfb2e1441eb16c81d046",
    ),
    _regression(
        "qm7",
        "qm7.csv",
        "atomisation energy, kcal/mol",
        rows=6830,
        tasks=("u0_atom",),
        metric="mae",
        sha256_file="b26c078f4d6c30278e4a31807835e46f7e800f472cfed079fea5d53e047442fb",
        sha256_smiles="701a4f184e8966aa0533fe3a0f4a687eac8070dd2172b43afbff71ab24a8531b",
    ),
    _regression(
        "qm8",
        "qm8.csv",
        "electronic spectra by three methods, 12 quantities",
        rows=21786,
        tasks=_QM8,
        metric="mae",
        sha256_file="c3f61f0d0b1c5d16a2cee049d82bc484f4e19a620c999e005af34c7e2e5cc820",
        sha256_smiles="07d44b171d4d29920c9b4f87dbea01b4899446e3826820fff832cb530a81004a",
    ),
)

_PRETRAINING = (
    _moses(
        "zinc10k",
        "10k",
        "a uniform sample of zinc250k",
        rows=10_000,
        sha256_file="4b9feb1752811883ae13155159480aee3b50d8178bec6e064ce79e02761ad12b",
        sha256_smiles="b3990b74174356723d78b087f45e26edbc5f5e5d5497a6332880f5a87d2d1b7c",
    ),
    _moses(
        "zinc250k",
        "250k",
        "a uniform sample of zinc2m",
        rows=250_000,
        sha256_file="912465a42585aec53c392af376ad2da97cc17567b7082b2b24f6cbc5f5afe370",
        sha256_smiles="6a347c625125e57ba97dbe8ef566dc1ed0734d41cf3da27e05b7ab20fa0f5f33",
    ),
    _moses(
        "zinc2m",
        "1937k",
        "drug-like molecules without labels, as many as the paper pre-trains on",
        rows=1_936_962,
        sha256_file="9e766b4fcbcab3ec221737bdbb774b849b99c8d28ac92f696dadf0486220f268",
        sha256_smiles="7bc9a35e18623cf13f32b634fec2a8c4838d6197653c7ebf23986006ad17d5c1",
    ),
)

_BUNDLED = (
    DatasetSpec(
        name="nci5k",
        description="screening compounds of the US National Cancer Institute",
        rows=4999,
        path="NCI/first_5K.smi",
        origin="rdkit-data",
        header=("smiles", "name"),
        licence="BSD-3-Clause",
        source="RDKit",
        split="random",
        sha256_file="91e71c015f14939837f2943dcc904f7c87e5a3a0124d82b05c28ad2f23004def",
        sha256_smiles="1d9fa413f33c4d2e2f2da9742cdbd7ce8f39d33b0b9fd78ce012a0b7f24e031d",
    ),
    DatasetSpec(
        name="wehi10k",
        description="drug-like screening compounds of the Walter and Eliza Hall Institute",
        rows=10_000,
        path="Pains/test_data/wehi_mols.csv",
        origin="rdkit-data",
        header=("smiles", "name"),
        licence="BSD-3-Clause",
        source="RDKit",
        split="random",
        sha256_file="ef14f29a583486042fe4fd8ed8d946aba20963dd3e9d756ea2e3f133f477bed9",
        sha256_smiles="81dc4568d9feffbaf40690df17500e4e4a78736d385cada6cc480e3a96bd2f33",
    ),
    DatasetSpec(
        name="chembl2321810",
        description="measured activity of one medicinal chemistry series",
        rows=1017,
        path="FreeWilson/data/CHEMBL2321810.smi",
        origin="rdkit-contrib",
        header=("smiles", "name"),
        tasks=("activity",),
        num_tasks=1,
        task="regression",
        metric="rmse",
        licence="CC BY-SA 3.0",
        source="ChEMBL, with RDKit",
        sha256_file="3feff3aa19f16c7a3aa8695acddd442d1fb3d582485bb7fe8754e7b36dc1894f",
        sha256_smiles="4f1ad17ff23166c508a5e0a6be0fb4ebed058ff1c1cb55d96e506655fbfcc96e",
        label_file="FreeWilson/data/CHEMBL2321810_act.csv",
        sha256_label_file="e74db717fa4704befa07eb41ad4845fa437bf3c12eb2b6a854576dbd2e8819fa",
    ),
)

MOLECULES = {spec.name: spec for spec in (*_CLASSIFICATION, *_REGRESSION, *_PRETRAINING, *_BUNDLED)}
"""Every molecule data set by name."""

DATASETS: dict[str, DatasetSpec] = {**MOLECULES, **PROTEIN_SETS, **GRAPHS}
"""Every data set by name. What is added here is found by every verb and every call."""


def find_spec(name: str) -> DatasetSpec:
    """Return what is known about a data set.

    Raises:
        ConfigError: If there is none of that name; suggests the nearest.
    """
    if name not in DATASETS:
        raise unknown_name("data set", name, DATASETS)
    return DATASETS[name]
