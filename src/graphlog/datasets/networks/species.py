"""Named networks: STRING's, for the 50 species of the pre-train-GNNs family, and one of yeast outside STRING."""

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
