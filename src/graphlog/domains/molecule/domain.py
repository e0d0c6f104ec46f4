"""Molecules as a domain: SMILES records, two schemas, Bemis-Murcko scaffolds as groups."""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float32

from graphlog.data.chunk import GraphChunk
from graphlog.data.schema import FeatureSchema
from graphlog.domains.base import Domain
from graphlog.domains.molecule.schema import MOLECULE, MOLECULE_CIP, MOLECULE_RICH
from graphlog.domains.molecule.targets import TARGETS


class MoleculeDomain(Domain):
    """SMILES to molecular graphs; RDKit is imported at the first record, not before."""

    name = "molecule"
    schemas = {s.name: s for s in (MOLECULE, MOLECULE_RICH, MOLECULE_CIP)}  # noqa: RUF012 - as constant as the schemas in it
    targets = TARGETS

    def featurize(
        self, records: Sequence[str], schema: FeatureSchema
    ) -> tuple[GraphChunk, list[tuple[int, str]]]:
        """Return the graphs of the SMILES and ``(position, reason)`` of each that is no molecule."""
        from graphlog.domains.molecule.parse import featurize_smiles

        return featurize_smiles(records, schema)

    def group_keys(self, records: Sequence[str]) -> list[str | None]:
        """Return the Bemis-Murcko scaffold of each SMILES, chirality kept; None where it cannot be parsed."""
        from graphlog.domains.molecule.murcko import scaffolds

        return scaffolds(records)

    def targets_version(self) -> str:
        """Return RDKit's version."""
        from rdkit import rdBase

        return rdBase.rdkitVersion

    def target_values(self, records: Sequence[str]) -> Float32[np.ndarray, "N K"]:
        """Return the descriptors named in ``targets`` of each SMILES; a NaN row where it cannot be parsed."""
        from graphlog.domains.molecule.quick import target_values

        return target_values(records)
