"""Interpretable features of molecules: properties, functional groups, ring systems."""

from collections import Counter
from collections.abc import Sequence
from itertools import chain

import numpy as np
from rdkit import Chem
from rdkit.Chem import Descriptors

from graphlog.domains.base import GraphFeature
from graphlog.domains.molecule.parse import parsed

_PROPERTIES = {
    "MolWt": "molecular weight",
    "MolLogP": "logP",
    "TPSA": "polar surface area",
    "NumHDonors": "hydrogen-bond donors",
    "NumHAcceptors": "hydrogen-bond acceptors",
    "NumRotatableBonds": "rotatable bonds",
    "NumAromaticRings": "aromatic rings",
    "NumAliphaticRings": "aliphatic rings",
    "FractionCSP3": "sp3 fraction",
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


def _value(f: object, mol: object) -> float:
    try:
        return float(f(mol))  # pyright: ignore[reportCallIssue]
    except Exception:  # RDKit's functions raise various errors on unusual molecules
        return 0.0


_MAX_RING_SYSTEMS = 30
"""Largest number of ring systems that become features."""
_MIN_SHARE = 0.01
"""Smallest share of molecules with a ring system that becomes a feature."""
_CARBON = 6
_NAMES = {
    "c1ccccc1": "benzene",
    "c1ccncc1": "pyridine",
    "c1cncnc1": "pyrimidine",
    "c1cnccn1": "pyrazine",
    "c1ccnnc1": "pyridazine",
    "c1ccoc1": "furan",
    "c1ccsc1": "thiophene",
    "c1cc[nH]c1": "pyrrole",
    "c1c[nH]cn1": "imidazole",
    "c1cn[nH]c1": "pyrazole",
    "c1cscn1": "thiazole",
    "c1cocn1": "oxazole",
    "c1cnoc1": "isoxazole",
    "c1nnn[nH]1": "tetrazole",
    "c1ccc2[nH]ccc2c1": "indole",
    "c1ccc2[nH]cnc2c1": "benzimidazole",
    "c1ccc2ccccc2c1": "naphthalene",
    "c1ccc2ncccc2c1": "quinoline",
    "C1CCCCC1": "cyclohexane",
    "C1CCCC1": "cyclopentane",
    "C1CC1": "cyclopropane",
    "C1CCNCC1": "piperidine",
    "C1CNCCN1": "piperazine",
    "C1COCCN1": "morpholine",
    "C1CCNC1": "pyrrolidine",
    "C1CCOC1": "tetrahydrofuran",
    "C1CCOCC1": "tetrahydropyran",
}


def traits(smiles: Sequence[str]) -> list[GraphFeature]:
    """Return properties, functional groups and frequent ring systems of molecules.

    A value that RDKit cannot compute is 0. Thousands of molecules take seconds.
    """
    function_named = dict(Descriptors.descList)
    functions = [function_named[name] for name in (*_PROPERTIES, *_FRAGMENTS)]
    table = np.full((len(smiles), len(functions)), np.nan)
    systems: list[set[str] | None] = [None] * len(smiles)
    for row, mol in enumerate(parsed(smiles)):
        if not isinstance(mol, str):
            table[row] = [_value(f, mol) for f in functions]
            systems[row] = _ring_systems(mol)
    features = [GraphFeature(n, "mean", table[:, k]) for k, n in enumerate(_PROPERTIES.values())]
    for k, name in enumerate(_FRAGMENTS.values(), start=len(features)):
        has = np.where(np.isnan(table[:, k]), np.nan, table[:, k] > 0)
        features.append(GraphFeature(f"with {name}", "share", has))
    counts = Counter(chain.from_iterable(filter(None, systems)))
    # equally frequent ones are sorted by SMILES, since the order of a set may change between runs
    ranked = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    for ring, count in ranked[:_MAX_RING_SYSTEMS]:
        if count >= _MIN_SHARE * len(smiles):
            has = [np.nan if rings is None else float(ring in rings) for rings in systems]
            name = f"with ring {_NAMES.get(ring, ring)}"
            features.append(GraphFeature(name, "share", np.array(has)))
    return features


def _ring_systems(mol: Chem.Mol) -> set[str]:
    """Return the canonical SMILES of ring systems (fused rings together) without substituents."""
    systems: list[set[int]] = []
    for ring in map(set, mol.GetRingInfo().AtomRings()):
        fused = [system for system in systems if system & ring]
        others = [system for system in systems if not system & ring]
        systems = [*others, ring.union(*fused)]
    return {_ring_smiles(mol, system) for system in systems}


def _ring_smiles(mol: Chem.Mol, ring: set[int]) -> str:
    """Return the SMILES of the atoms of a ring system, with hydrogens instead of substituents.

    Atoms with a double bond to a ring are kept, since without them it might not be aromatic.
    """
    part, place = Chem.RWMol(), dict[int, int]()
    for atom in mol.GetAtoms():
        is_doubly_bound = any(
            bond.GetOtherAtomIdx(atom.GetIdx()) in ring and bond.GetBondTypeAsDouble() == 2
            for bond in atom.GetBonds()
        )
        if atom.GetIdx() in ring or is_doubly_bound:
            copy = Chem.Atom(atom.GetAtomicNum())
            copy.SetFormalCharge(atom.GetFormalCharge())
            copy.SetIsAromatic(atom.GetIsAromatic())
            inside = sum(other.GetIdx() in ring for other in atom.GetNeighbors())
            if atom.GetIsAromatic() and atom.GetAtomicNum() != _CARBON and inside == 2:
                copy.SetNumExplicitHs(atom.GetTotalDegree() - inside)
            place[atom.GetIdx()] = part.AddAtom(copy)
    for bond in mol.GetBonds():
        ends = bond.GetBeginAtomIdx(), bond.GetEndAtomIdx()
        if place.keys() >= set(ends):
            part.AddBond(place[ends[0]], place[ends[1]], bond.GetBondType())
    try:
        Chem.SanitizeMol(part)
    except Chem.MolSanitizeException:
        return Chem.MolFragmentToSmiles(mol, sorted(ring), isomericSmiles=False)
    return Chem.MolToSmiles(part)
