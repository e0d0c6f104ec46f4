"""Named networks, labelled sets of ego-networks and sets of graphs: what they are and where."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

from graphlog.datasets.base import DatasetSpec

_STRING = "https://stringdb-downloads.org/download/protein.links.detailed.v12.0/"
_FILE = "{taxon}.protein.links.detailed.v12.0.txt.gz"

LABELLED = {
    "3702": "Arabidopsis thaliana",
    "6239": "Caenorhabditis elegans",
    "511145": "Escherichia coli K12",
    "7227": "Drosophila melanogaster",
    "9606": "Homo sapiens",
    "10090": "Mus musculus",
    "4932": "Saccharomyces cerevisiae",
    "7955": "Danio rerio",
}
"""The eight species that the family labels with GO functions, by taxon."""
UNLABELLED = (
    *(
        "3694",
        "39947",
        "10116",
        "443255",
        "9913",
        "13616",
        "3847",
        "4577",
        "8364",
        "9823",
        "9615",
        "9544",
        "9796",
        "3055",
        "7159",
    ),
    *(
        "9031",
        "7739",
        "395019",
        "88036",
        "9685",
        "9258",
        "9598",
        "485913",
        "44689",
        "9593",
        "7897",
        "31033",
        "749414",
        "59729",
    ),
    *(
        "536227",
        "4081",
        "8090",
        "9601",
        "749927",
        "13735",
        "448385",
        "457427",
        "3711",
        "479433",
        "479432",
        "28377",
        "9646",
    ),
)
"""The 42 that it adds for pre-training, by taxon."""


def _string(taxon: str) -> DatasetSpec:
    file = _FILE.format(taxon=taxon)
    return DatasetSpec(
        name=f"string-{taxon}",
        description=f"protein network of {LABELLED.get(taxon, f'species {taxon}')}, STRING 12.0",
        domain="protein",
        rows=0,
        path=f"bio/string/{file}",
        url=_STRING + file,
        licence="CC BY 4.0",
        source="STRING 12.0",
        split="species",
        smiles_column=None,
    )


_WORM = DatasetSpec(
    name="string-6239",
    description="protein network of Caenorhabditis elegans: STRING 10 from 700 where mirrored, else STRING 12.0",
    domain="protein",
    rows=202_834,
    path="bio/celegans_string_v10_detailed_700.csv.gz",
    sha256_file="cdef4858129dbffe213d0993c5ac913d329f6198b0bfd793a1ada5ec49b29c3d",
    url=_STRING + _FILE.format(taxon="6239"),
    licence="CC BY 4.0",
    source="STRING",
    split="species",
    smiles_column=None,
)
_YEAST = DatasetSpec(
    name="yeast-bionic",
    description="yeast: genetic interactions, co-expression and complexes measured by three studies",
    domain="protein",
    rows=54_957,
    path="bio/yeast_bionic_networks.csv.gz",
    sha256_file="cee27c0b91ad0412b023d2c0a53265b8c6abbb328eca2086d1d70f378525a0a7",
    options={
        "score": 0
    },  # the studies list what they found significant; their weights are no scores of STRING's kind
    licence="MIT",
    source="bowang-lab/BIONIC (Costanzo 2016, Hu 2007, Krogan 2006)",
    split="species",
    smiles_column=None,
)

NETWORKS = {
    spec.name: spec
    for spec in (*(_WORM if t == "6239" else _string(t) for t in (*LABELLED, *UNLABELLED)), _YEAST)
}
"""Every named network."""
TAXA = {_WORM.name: "6239", _YEAST.name: "4932"}
"""Species of the mirrored files, whose proteins carry no taxon."""


_GO = "https://current.geneontology.org/annotations/{}.gaf.gz"
_ALIASES = (
    "https://stringdb-downloads.org/download/protein.aliases.v12.0/{}.protein.aliases.v12.0.txt.gz"
)
_ANNOTATED_BY = {
    "3702": "tair",
    "6239": "wb",
    "511145": "ecocyc",
    "7227": "fb",
    "9606": "goa_human",
    "10090": "mgi",
    "4932": "sgd",
    "7955": "zfin",
}
"""The GO consortium's annotation file of each of the eight species."""


def _file(
    name: str, path: str, url: str, begins: str, source: str, description: str
) -> DatasetSpec:
    return DatasetSpec(
        name=name,
        description=description,
        domain="protein",
        rows=0,
        path=path,
        url=url,
        begins=begins,
        licence="CC BY 4.0",
        source=source,
    )


GO_GRAPH = _file(
    "go-graph",
    "bio/go/go-basic.obo",
    "https://purl.obolibrary.org/obo/go/go-basic.obo",
    "format-version",
    "Gene Ontology",
    "the Gene Ontology, current release",
)
"""The ontology that the annotations refer to."""


def annotation_file(taxon: str) -> DatasetSpec:
    """Return where the GO annotations of one of the eight species are."""
    name = _ANNOTATED_BY[taxon]
    return _file(
        f"gaf-{taxon}",
        f"bio/go/{name}.gaf.gz",
        _GO.format(name),
        "!gaf-version",
        "Gene Ontology",
        f"annotations of {taxon}",
    )


def alias_file(taxon: str) -> DatasetSpec:
    """Return where STRING's other names of a species' proteins are."""
    path = f"bio/string/{taxon}.protein.aliases.v12.0.txt.gz"
    return _file(
        f"aliases-{taxon}",
        path,
        _ALIASES.format(taxon),
        "#string_protein_id",
        "STRING 12.0",
        f"names of {taxon}",
    )


def _annotated(name: str, taxa: Sequence[str], whose: str) -> DatasetSpec:
    return DatasetSpec(
        name=name,
        description=f"ego-networks of {whose}, STRING 12.0, with 40 functions chosen from current GO annotations",
        domain="protein",
        rows=0,
        path="",
        networks=tuple(f"string-{taxon}" for taxon in taxa),
        labelling="go",
        num_tasks=40,
        task="classification",
        metric="roc_auc",
        split="species" if len(taxa) > 1 else "random",
        licence="CC BY 4.0",
        source="STRING 12.0, Gene Ontology",
        smiles_column=None,
    )


_WORM_LABELS = DatasetSpec(
    name="worm-go40",
    description="6,642 labelled ego-networks of C. elegans, 40 GO functions; all 10,735 are there to pre-train on",
    domain="protein",
    rows=10_735,
    path="bio/celegans_go40_labels.csv.gz",
    sha256_file="9c861a5715ab2476d0018cb9640fcec523cf0cce4c90d25006d2466dd1afe45e",
    networks=("string-6239",),
    labelling="table",
    num_tasks=40,
    task="classification",
    metric="roc_auc",
    split="random",
    licence="CC BY 4.0",
    source="STRING 10, Gene Ontology 2021-02 (annotations) and 2022-07 (graph)",
    smiles_column=None,
)
_WORM_LABELS_APART = replace(
    _WORM_LABELS,
    name="worm-network",
    description="worm-go40, split by communities of the network, so that test proteins are far from those learnt from",
    split="network",
)
_YEAST_LABELS = DatasetSpec(
    name="yeast-complexes",
    description="556 labelled ego-networks of yeast from three kinds of evidence, IntAct complexes with ten or more proteins",
    domain="protein",
    rows=5232,
    path="bio/yeast_intact_complexes.tsv.gz",
    sha256_file="79b70a60deaeac0f7286a25f051b5a15e503de88ecd47df6def3c73f33ffc671",
    networks=("yeast-bionic",),
    labelling="table",
    # all that the three studies report, whatever its weight; complexes share few proteins and are small
    options={"score": 0, "min_positives": 10, "max_overlap": 0.5},
    num_tasks=31,
    task="classification",
    metric="roc_auc",
    split="random",
    licence="MIT",
    source="bowang-lab/BIONIC (Costanzo 2016, Hu 2007, Krogan 2006; IntAct)",
    smiles_column=None,
)
_BOTH_LABELS = DatasetSpec(
    name="worm-yeast",
    description="worm and yeast ego-networks; is the protein known as part of a complex (GO:0032991; IntAct)?",
    domain="protein",
    rows=15_967,
    path="bio/celegans_go_propagated_min20.tsv.gz",
    sha256_file="bce01ca85387970d05e4f1cfc0a3acbb3744e0a61f1172c8e1c7eff61e385f70",
    label_file=_YEAST_LABELS.path,
    sha256_label_file=_YEAST_LABELS.sha256_file,
    networks=("string-6239", "yeast-bionic"),
    labelling="complexes",
    options={"score": 0},
    tasks=("in_complex",),
    num_tasks=1,
    task="classification",
    metric="roc_auc",
    split="species",
    licence="CC BY 4.0 and MIT",
    source="STRING 10, Gene Ontology, bowang-lab/BIONIC, IntAct",
    smiles_column=None,
)

LABELLED_SETS = {
    spec.name: spec
    for spec in (
        _WORM_LABELS,
        _WORM_LABELS_APART,
        _YEAST_LABELS,
        _BOTH_LABELS,
        _annotated("go-8", tuple(LABELLED), "the eight species of the pre-train-GNNs family"),
        *(_annotated(f"go-{taxon}", (taxon,), whose) for taxon, whose in LABELLED.items()),
    )
}
"""Every named set of labelled ego-networks."""


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

PROTEIN_SETS = {**NETWORKS, **LABELLED_SETS}
"""Every named network and labelled set."""
GRAPHS = {spec.name: spec for spec in _SPECS}
"""Every named set of graphs that are neither molecules nor ego-networks of proteins."""
