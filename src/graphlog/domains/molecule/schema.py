"""Schemas of molecules (the codes of attributes) and names of descriptors, without RDKit."""

from dataclasses import replace

from graphlog.data.graphs import Attribute, FeatureSchema

WILDCARD = 118
"""Atomic number code of an atom without element (``*``); elements have code ``Z - 1``, 0 to 117."""
OTHER_CHIRALITY = 3
"""Code of ``molecule`` for a chirality that is neither absent, clockwise nor counter-clockwise."""
OTHER_BOND = 6
"""Code of ``molecule`` for a bond that is not single, double, triple or aromatic (dative, ...)."""
OTHER_DIRECTION = 3
"""Code of ``molecule`` for a direction other than none, up-right and down-right (wedge, ...)."""

ATOM = Attribute("atomic_number", 120)
"""Atomic number; 0-117: element ``Z - 1``, 118: wildcard, 119: masked."""

MOLECULE = FeatureSchema(
    name="molecule",
    domain="molecule",
    node=(
        ATOM,
        Attribute("chirality", 5),  # unspecified, clockwise, counter-clockwise, other, masked
    ),
    edge=(
        Attribute("bond_type", 7),  # single, double, triple, aromatic, self-loop, masked, other
        Attribute("bond_direction", 4),  # none, end-up-right, end-down-right, other
    ),
    masked="node",
    node_mask=(119, 4),
    edge_mask=(5, 0),
    self_loop=(4, 0),
)
"""Attributes and codes of the pre-train-GNNs family, which published weights were trained with.

Values that its featurizer rejects have further codes.
"""

MOLECULE_RICH = FeatureSchema(
    name="molecule-rich",
    domain="molecule",
    node=(
        ATOM,
        # unspecified, clockwise, counter-clockwise, RDKit's "other"; 4 misc, 5 masked
        Attribute("chirality", 6),
        Attribute("degree", 13),  # 0-10 neighbors, hydrogens counted; 11 misc, 12 masked
        Attribute("formal_charge", 13),  # -5 to 5 as 0-10; 11 misc, 12 masked
        Attribute("num_hydrogens", 11),  # 0-8; 9 misc, 10 masked
        Attribute("num_radical_electrons", 7),  # 0-4; 5 misc, 6 masked
        Attribute("hybridization", 7),  # SP, SP2, SP3, SP3D, SP3D2; 5 misc, 6 masked
        Attribute("is_aromatic", 3),  # no, yes; 2 masked (a yes or no has no misc)
        Attribute("is_in_ring", 3),  # no, yes; 2 masked
    ),
    edge=(
        # single, double, triple, aromatic; 4 misc, 5 self-loop, 6 masked
        Attribute("bond_type", 7),
        Attribute("bond_stereo", 8),  # none, Z, E, cis, trans, any; 6 misc, 7 masked
        Attribute("is_conjugated", 3),  # no, yes; 2 masked
    ),
    masked="node",
    node_mask=(119, 5, 12, 12, 10, 6, 6, 2, 2),
    edge_mask=(6, 7, 2),
    self_loop=(5, 0, 0),
)
"""Attributes and codes of OGB, with further codes for masks and self-loops."""

MOLECULE_CIP = replace(
    MOLECULE_RICH,
    name="molecule-cip",
    node=(
        ATOM,
        # none, R, S, r, s; 5 specified but without such a label, 6 masked
        Attribute("cip_centre", 7),
        *MOLECULE_RICH.node[2:],
    ),
    edge=(
        MOLECULE_RICH.edge[0],
        Attribute("cip_bond", 5),  # none, Z, E; 3 specified but without such a label, 4 masked
        MOLECULE_RICH.edge[2],
    ),
    node_mask=(119, 6, 12, 12, 10, 6, 6, 2, 2),
    edge_mask=(6, 4, 2),
)
"""Attributes of OGB with CIP labels of stereo, since tags depend on how a SMILES is written.

Hydrogens of all isotopes are counted and are not nodes. A complex has one graph, no matter whether
its bonds to the metal are written as dative bonds, single bonds or charges.
"""

MOLECULE_ISOTOPES = replace(
    MOLECULE_CIP,
    name="molecule-isotopes",
    # 0 as in nature, 1-300 mass number, 301 masked
    node=(*MOLECULE_CIP.node, Attribute("isotope", 302)),
    node_mask=(119, 6, 12, 12, 10, 6, 6, 2, 2, 301),
)
"""Attributes of ``molecule-cip`` with isotopes; deuterium and tritium are nodes."""


def _numbered(prefix: str, last: int) -> tuple[str, ...]:
    return tuple(f"{prefix}{k}" for k in range(1, last + 1))


_OTHER_NAMES = {"NumHAcceptors": "NumHBA", "NumHDonors": "NumHBD", "RingCount": "NumRings"}
ONE_BY_ONE: tuple[tuple[str, str], ...] = tuple(
    (name, f"Calc{_OTHER_NAMES.get(name, name)}")
    for name in (
        "Chi0n Chi1n Chi2n Chi3n Chi4n Chi0v Chi1v Chi2v Chi3v Chi4v HallKierAlpha LabuteASA TPSA "
        "FractionCSP3 NumRotatableBonds ExactMolWt NumHAcceptors NumHDonors RingCount "
        "NumAromaticRings NumSaturatedRings NumAliphaticRings NumHeterocycles "
        "NumAromaticCarbocycles NumSaturatedCarbocycles NumAliphaticCarbocycles "
        "NumAromaticHeterocycles NumSaturatedHeterocycles NumAliphaticHeterocycles NumAmideBonds "
        "NumBridgeheadAtoms NumSpiroAtoms NumAtomStereoCenters NumUnspecifiedAtomStereoCenters"
    ).split()
)
"""Names of descriptors and of their functions in RDKit's ``rdMolDescriptors``."""
FRAGMENTS = tuple(
    f"fr_{name}"
    for name in (
        "Al_COO Al_OH Al_OH_noTert ArN Ar_COO Ar_N Ar_NH Ar_OH COO COO2 C_O C_O_noCOO C_S "
        "HOCCN Imine NH0 NH1 NH2 N_O Ndealkylation1 Ndealkylation2 Nhpyrrole SH aldehyde "
        "alkyl_carbamate alkyl_halide allylic_oxid amide amidine aniline aryl_methyl azide "
        "azo barbitur benzene benzodiazepine bicyclic diazo dihydropyridine epoxide ester "
        "ether furan guanido halogen hdrzine hdrzone imidazole imide isocyan isothiocyan "
        "ketone ketone_Topliss lactam lactone methoxy morpholine nitrile nitro nitro_arom "
        "nitro_arom_nonortho nitroso oxazole oxime para_hydroxylation phenol "
        "phenol_noOrthoHbond phos_acid phos_ester piperdine piperzine priamide prisulfonamd "
        "pyridine quatN sulfide sulfonamd sulfone term_acetylene tetrazole thiazole thiocyan "
        "thiophene unbrch_alkane urea"
    ).split()
)

TARGETS: tuple[str, ...] = (
    *"MolLogP MolMR".split(),
    *_numbered("SlogP_VSA", 12),
    *_numbered("SMR_VSA", 10),
    *_numbered("PEOE_VSA", 14),
    *"MaxEStateIndex MinEStateIndex MaxAbsEStateIndex MinAbsEStateIndex".split(),
    *_numbered("EState_VSA", 11),
    *_numbered("VSA_EState", 10),
    *"Chi0 Chi1 NumValenceElectrons NumRadicalElectrons HeavyAtomCount NHOHCount".split(),
    *"NOCount NumHeteroatoms Kappa1 Kappa2 Kappa3 Phi".split(),
    *(name for name, _ in ONE_BY_ONE),
    *"MolWt HeavyAtomMolWt".split(),
    *FRAGMENTS,
)
"""Names of the descriptors that a model can learn to predict without labels.

They are fast, finite for any molecule, and part of every supported release of RDKit. The list is
fixed, so that the width of a head does not depend on the release. It has all two-dimensional
descriptors but those that are slow compared with all others together (``qed``, ``SPS``,
``BertzCT``, ``AvgIpc``, ``BCUT2D_*``), not finite for every molecule (``*PartialCharge``,
``BCUT2D_*``, ``Ipc``, and ``BalabanJ`` of a salt) or computed from the number of bits of a
fingerprint (``FpDensityMorgan*``).
"""
