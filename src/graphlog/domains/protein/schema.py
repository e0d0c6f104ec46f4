"""Schema of ego-networks, and the options by which they are cut and labeled."""

from typing import Literal

from pydantic import Field, field_validator

from graphlog.config import FrozenConfig
from graphlog.data.graphs import Attribute, FeatureSchema
from graphlog.datasets import DatasetSpec

CHANNELS = (
    "neighborhood",
    "fusion",
    "cooccurence",
    "coexpression",
    "experimental",
    "database",
    "textmining",
)
"""Evidence channels of STRING, in its order and spelling."""
_EVIDENCE = (
    "EXP IDA IPI IMP IGI IEP HTP HDA HMP HGI HEP IBA IBD IKR IRD IMR ISS ISO ISA ISM IGC RCA TAS "
    "NAS IC ND NR IEA"
).split()
"""Codes of the Gene Ontology for the evidence of an annotation."""
PROTEIN = FeatureSchema(
    name="protein",
    domain="protein",
    node=(Attribute("protein", 2),),
    edge=tuple(Attribute(name, 0) for name in (*CHANNELS, "self_loop", "mask")),
    masked="edge",
    edge_mask=(0.0,) * 8 + (1.0,),
    self_loop=(0.0,) * 7 + (1.0, 0.0),
)
"""Schema of the pre-train-GNNs family: node 0 is the center, and every node has code 1."""
CUTTING = ("score", "channel_score", "radius", "neighbors", "nodes", "isolated")
"""Names of the options that determine the ego-networks; the other options choose labels."""


class ProteinOptions(FrozenConfig):
    """Options by which interactions are selected, ego-networks cut, and functions made labels."""

    score: int = Field(default=700, ge=0, le=1000)
    """Lowest combined score of an interaction; STRING calls 700 high confidence, 400 medium."""
    channel_score: int | dict[str, int] = 1
    """Lowest score at which a channel is set, one for all channels or one for each; interactions
    without a channel that is set are dropped."""
    radius: int = Field(default=1, ge=1)
    """Largest number of steps from the center to a protein."""
    neighbors: int = Field(default=100, ge=1)
    """Largest number of partners followed from each protein, those with the highest scores."""
    nodes: int = Field(default=500, ge=1)
    """Largest number of proteins in an ego-network; partners of the center come first."""
    isolated: Literal["reject", "keep"] = "reject"
    """Whether a protein without partners is a rejected row or a graph of one node."""
    evidence: tuple[str, ...] = ("IEA", "ND", "NAS")
    """Evidence codes of the annotations to ignore (electronic, no data, no traceable author)."""
    min_positives: int = Field(default=100, ge=1)
    """Smallest number of positive proteins of a chosen term."""
    max_overlap: float = Field(default=0.8, gt=0, le=1)
    """Exclusive upper bound of the Jaccard index of the proteins of two chosen terms."""
    terms: int = Field(default=40, ge=1)
    """Largest number of terms to choose; those with the most proteins come first."""

    @field_validator("channel_score")
    @classmethod
    def _known_channels(cls, value: int | dict[str, int]) -> int | dict[str, int]:
        scores = value if isinstance(value, dict) else {CHANNELS[0]: value}
        for name, lowest in scores.items():
            if name not in CHANNELS:
                raise ValueError(f"has no channel '{name}' (known: {', '.join(CHANNELS)})")
            if not 1 <= lowest <= 1000:
                raise ValueError("must be from 1 to 1000")
        return value

    @field_validator("evidence")
    @classmethod
    def _known_evidence(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        codes = tuple(code.upper() for code in value)
        for code in codes:
            if code not in _EVIDENCE:
                raise ValueError(f"there is no evidence '{code}' (known: {', '.join(_EVIDENCE)})")
        return codes

    @property
    def channel_scores(self) -> tuple[int, ...]:
        """Lowest score of each channel, in STRING's order."""
        value = self.channel_score
        return tuple(value.get(name, 1) if isinstance(value, dict) else value for name in CHANNELS)


def species_of(name: str) -> str | None:
    """Return the taxon before the first dot of a STRING name; None if there is none.

    Example:
        >>> species_of("6239.2RSSE.1"), species_of("YAL001C")
        ('6239', None)
    """
    taxon, dot, _ = name.partition(".")
    return taxon if dot and taxon.isdecimal() else None


class NetworkDetails(FrozenConfig):
    """Options by which a network, a labeled set or another file of the catalog is read."""

    begins: str = "protein1 protein2"
    """Beginning of the first line of a file that has no pinned sha256."""
    taxon: str | None = None
    """Taxon of a network whose protein names have none."""
    networks: tuple[str, ...] = ()
    """Networks of a labeled set, whose table of labels is ``path``; empty for a network."""
    labeling: Literal["", "table", "complexes", "go"] = ""
    """Source of the labels: the table ``path``, membership in any complex, or GO annotations."""
    options: ProteinOptions = ProteinOptions()
    """Options by which its ego-networks are cut and its functions chosen."""
    label_file: str | None = None
    """Path of a second table of labels."""
    sha256_label_file: str = ""
    """SHA-256 of that table."""


def details_of(spec: DatasetSpec) -> NetworkDetails:
    """Return the options by which a data set of proteins is read."""
    return NetworkDetails.parse(spec.details, f"{spec.name}: details.")
