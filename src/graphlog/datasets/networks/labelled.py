"""Named sets of labelled ego-networks: which networks, which functions, and the files they come from."""

from collections.abc import Sequence
from dataclasses import replace

from graphlog.datasets.base import DatasetSpec
from graphlog.datasets.networks.species import LABELLED

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


_WORM = DatasetSpec(
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
_WORM_APART = replace(
    _WORM,
    name="worm-network",
    description="worm-go40, split by communities of the network, so that test proteins are far from those learnt from",
    split="network",
)
_YEAST = DatasetSpec(
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
_BOTH = DatasetSpec(
    name="worm-yeast",
    description="worm and yeast ego-networks; is the protein known as part of a complex (GO:0032991; IntAct)?",
    domain="protein",
    rows=15_967,
    path="bio/celegans_go_propagated_min20.tsv.gz",
    sha256_file="bce01ca85387970d05e4f1cfc0a3acbb3744e0a61f1172c8e1c7eff61e385f70",
    label_file=_YEAST.path,
    sha256_label_file=_YEAST.sha256_file,
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
        _WORM,
        _WORM_APART,
        _YEAST,
        _BOTH,
        _annotated("go-8", tuple(LABELLED), "the eight species of the pre-train-GNNs family"),
        *(_annotated(f"go-{taxon}", (taxon,), whose) for taxon, whose in LABELLED.items()),
    )
}
"""Every named set of labelled ego-networks."""
