"""Which descriptors serve as labels that cost nothing: a fixed list, so that a head's width does not depend on RDKit's release."""


def _numbered(prefix: str, first: int, last: int) -> tuple[str, ...]:
    return tuple(f"{prefix}{k}" for k in range(first, last + 1))


TARGETS: tuple[str, ...] = (
    *("MolWt", "HeavyAtomMolWt", "NumValenceElectrons", "HeavyAtomCount", "NHOHCount", "NOCount", "NumHAcceptors", "NumHDonors"),
    *("NumHeteroatoms", "NumRotatableBonds", "NumAromaticRings", "NumSaturatedRings", "NumAliphaticRings", "RingCount"),
    *("NumAromaticCarbocycles", "NumAromaticHeterocycles", "NumSaturatedCarbocycles", "NumSaturatedHeterocycles"),
    *("NumAliphaticCarbocycles", "NumAliphaticHeterocycles", "FractionCSP3", "TPSA", "MolLogP", "MolMR", "LabuteASA", "HallKierAlpha"),
    *("Chi0", "Chi1", "Chi0n", "Chi1n", "Chi2n", "Chi3n", "Chi4n", "Chi0v", "Chi1v", "Chi2v", "Chi3v", "Chi4v"),
    *("Kappa1", "Kappa2", "Kappa3", "MaxEStateIndex", "MinEStateIndex", "MaxAbsEStateIndex", "MinAbsEStateIndex"),
    *_numbered("SMR_VSA", 1, 10),
    *_numbered("SlogP_VSA", 1, 12),
    *_numbered("PEOE_VSA", 1, 14),
    *_numbered("EState_VSA", 1, 11),
    *_numbered("VSA_EState", 1, 10),
    *("fr_halogen", "fr_amide", "fr_ester", "fr_ether", "fr_nitro", "fr_sulfide", "fr_sulfonamd", "fr_ketone", "fr_aldehyde"),
    *("fr_COO", "fr_NH0", "fr_NH1", "fr_NH2", "fr_Ar_N", "fr_Al_OH", "fr_Ar_OH", "fr_C_O", "fr_aniline", "fr_bicyclic", "fr_benzene"),
)
"""Names of descriptors that are quick, finite for any molecule, and in every supported release."""
