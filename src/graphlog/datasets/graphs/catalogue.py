"""The TU sets by name: the files of the mirror are in GIN's text format, the public ones TUDataset's zips."""

from typing import Literal

from graphlog.datasets.base import DatasetSpec

_URL = "https://www.chrsmrrs.com/graphkerneldatasets/"


def _tu(
    name: str, file: str, public: str, rows: int, classes: int, description: str, sha256: str
) -> DatasetSpec:
    task: Literal["classification", "multiclass"] = (
        "classification" if classes == 2 else "multiclass"
    )
    return DatasetSpec(
        name=name,
        description=f"{description}; {classes} classes",
        domain="graph",
        rows=rows,
        path=f"tu/{file}.txt.gz",
        sha256_file=sha256,
        url=f"{_URL}{public}.zip",
        licence="as TUDataset's sources; files by way of pytorch_DGCNN, MIT",
        source="TUDataset (Morris et al. 2020)",
        num_tasks=1,
        tasks=("label",),
        task=task,
        metric="roc_auc" if classes == 2 else "accuracy",
        split="stratified",
        smiles_column=None,
    )


_SPECS = (
    _tu(
        *("mutag", "MUTAG", "MUTAG", 188, 2, "nitroaromatic compounds, mutagenic or not"),
        sha256="1f9404ee9499f75a0b753d60f7fc0372579d7dc966d115718cfff56f42b7df55",
    ),
    _tu(
        *("ptc", "PTC", "PTC_MR", 344, 2, "compounds, carcinogenic for male rats or not"),
        sha256="f1534c3bf1186383c4ed172a8ebe111de30e26f0137fa0f7720931c27418cab7",
    ),
    _tu(
        *("nci1", "NCI1", "NCI1", 4110, 2, "compounds active against lung cancer cells or not"),
        sha256="91994dc91b6586a074f911b78d3375d59691c0afc19b683dceead538170432cb",
    ),
    _tu(
        *(
            "nci109",
            "NCI109",
            "NCI109",
            4127,
            2,
            "compounds active against ovarian cancer cells or not",
        ),
        sha256="76c8f65e27c82ff7c5539941fb0a1c6638cca5485094ea736f872bc993dcd401",
    ),
    _tu(
        *(
            "proteins",
            "PROTEINS",
            "PROTEINS",
            1113,
            2,
            "proteins as graphs of secondary structure, enzymes or not",
        ),
        sha256="ccdf106cd248161d24eabbce41bd9d6d3d086ad4c7ab6dd8d0725fc280a00944",
    ),
    _tu(
        *(
            "enzymes",
            "ENZYMES",
            "ENZYMES",
            600,
            6,
            "enzymes as graphs of secondary structure, by EC class",
        ),
        sha256="4961fdf9b5b857d724935c1d4bf1269b50683c3bf90857d9803cb03a04ab97c9",
    ),
    _tu(
        *(
            "imdb-binary",
            "IMDBBINARY",
            "IMDB-BINARY",
            1000,
            2,
            "actors of a film's ego-network, by genre",
        ),
        sha256="799523fac5dabe317877664d0b6861abcc58278af851b64faabd6d9fe667fc44",
    ),
    _tu(
        *(
            "imdb-multi",
            "IMDBMULTI",
            "IMDB-MULTI",
            1500,
            3,
            "actors of a film's ego-network, by genre",
        ),
        sha256="8ba5d918df4ea3a4fc6d8580ee8b5898f6dccee689f16453fff2a4893eb1885e",
    ),
)

GRAPHS = {spec.name: spec for spec in _SPECS}
"""Every named set of graphs that are neither molecules nor ego-networks of proteins."""
