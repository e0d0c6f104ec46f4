"""What a chemist asks of a group of molecules: properties and functional groups."""

from collections.abc import Sequence

import numpy as np

from graphlog.domains.base import GraphFeature
from graphlog.domains.molecule.descriptor import descriptors

_PROPERTIES = {
    "MolWt": "molecular weight",
    "MolLogP": "logP",
    "TPSA": "polar surface area",
    "NumHDonors": "hydrogen-bond donors",
    "NumHAcceptors": "hydrogen-bond acceptors",
    "NumRotatableBonds": "rotatable bonds",
    "NumAromaticRings": "aromatic rings",
    "NumAliphaticRings": "aliphatic rings",
    "FractionCSP3": "sp3 carbons, share",
    "qed": "drug-likeness (QED)",
}
_FRAGMENTS = {
    "fr_halogen": "halogen",
    "fr_amide": "amide",
    "fr_ester": "ester",
    "fr_ether": "ether",
    "fr_nitro": "nitro group",
    "fr_nitrile": "nitrile",
    "fr_sulfonamd": "sulfonamide",
    "fr_sulfide": "thioether",
    "fr_COO": "carboxylic acid",
    "fr_Al_OH": "aliphatic hydroxyl",
    "fr_phenol": "phenol",
    "fr_NH2": "primary amine",
    "fr_aniline": "aniline",
    "fr_urea": "urea",
    "fr_ketone": "ketone",
    "fr_piperzine": "piperazine",
    "fr_piperdine": "piperidine",
    "fr_morpholine": "morpholine",
    "fr_pyridine": "pyridine",
    "fr_imidazole": "imidazole",
    "fr_thiazole": "thiazole",
    "fr_thiophene": "thiophene",
    "fr_furan": "furan",
    "fr_tetrazole": "tetrazole",
    "fr_bicyclic": "fused rings",
}


def traits(smiles: Sequence[str]) -> list[GraphFeature]:
    """Return properties and functional groups of each molecule; some thousand take seconds."""
    table = descriptors(smiles, [*_PROPERTIES, *_FRAGMENTS]).astype(np.float64)
    count = len(_PROPERTIES)
    present = np.where(np.isnan(table[:, count:]), np.nan, table[:, count:] > 0)
    return [
        *(GraphFeature(name, "mean", table[:, k]) for k, name in enumerate(_PROPERTIES.values())),
        *(
            GraphFeature(f"with {name}", "share", present[:, k])
            for k, name in enumerate(_FRAGMENTS.values())
        ),
    ]
