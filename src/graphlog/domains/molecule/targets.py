"""Which descriptors serve as labels that cost nothing.

The list is fixed, so that a head's width does not depend on RDKit's release.

All of RDKit's two-dimensional descriptors are here but those that are slow beside the rest together
(``qed``, ``SPS``, ``BertzCT``, ``AvgIpc``, ``BCUT2D_*``), not finite for every molecule
(``*PartialCharge``, ``BCUT2D_*``, ``Ipc``, and ``BalabanJ`` of a salt) or made of the number of
bits of a fingerprint (``FpDensityMorgan*``).
"""


def _numbered(prefix: str, first: int, last: int) -> tuple[str, ...]:
    return tuple(f"{prefix}{k}" for k in range(first, last + 1))


CRIPPEN = ("MolLogP", "MolMR")
SLOGP, SMR, PEOE = (
    _numbered("SlogP_VSA", 1, 12),
    _numbered("SMR_VSA", 1, 10),
    _numbered("PEOE_VSA", 1, 14),
)
ESTATE = ("MaxEStateIndex", "MinEStateIndex", "MaxAbsEStateIndex", "MinAbsEStateIndex")
ESTATE_VSA, VSA_ESTATE = _numbered("EState_VSA", 1, 11), _numbered("VSA_EState", 1, 10)
COUNTED = (
    "Chi0",
    "Chi1",
    "NumValenceElectrons",
    "NumRadicalElectrons",
    "HeavyAtomCount",
    "NHOHCount",
    "NOCount",
    "NumHeteroatoms",
)
SHAPE = ("Kappa1", "Kappa2", "Kappa3", "Phi")
ONE_BY_ONE: tuple[tuple[str, str], ...] = (
    *(
        (name, f"Calc{name}")
        for name in (
            "Chi0n",
            "Chi1n",
            "Chi2n",
            "Chi3n",
            "Chi4n",
            "Chi0v",
            "Chi1v",
            "Chi2v",
            "Chi3v",
            "Chi4v",
        )
    ),
    *(
        (name, f"Calc{name}")
        for name in ("HallKierAlpha", "LabuteASA", "TPSA", "FractionCSP3", "NumRotatableBonds")
    ),
    ("ExactMolWt", "CalcExactMolWt"),
    ("NumHAcceptors", "CalcNumHBA"),
    ("NumHDonors", "CalcNumHBD"),
    ("RingCount", "CalcNumRings"),
    *(
        (name, f"Calc{name}")
        for name in (
            "NumAromaticRings",
            "NumSaturatedRings",
            "NumAliphaticRings",
            "NumHeterocycles",
        )
    ),
    *(
        (name, f"Calc{name}")
        for name in ("NumAromaticCarbocycles", "NumSaturatedCarbocycles", "NumAliphaticCarbocycles")
    ),
    *(
        (name, f"Calc{name}")
        for name in (
            "NumAromaticHeterocycles",
            "NumSaturatedHeterocycles",
            "NumAliphaticHeterocycles",
        )
    ),
    *((name, f"Calc{name}") for name in ("NumAmideBonds", "NumBridgeheadAtoms", "NumSpiroAtoms")),
    *(
        (name, f"Calc{name}")
        for name in ("NumAtomStereoCenters", "NumUnspecifiedAtomStereoCenters")
    ),
)
"""Names, and what RDKit's ``rdMolDescriptors`` calls them."""
WEIGHTS = ("MolWt", "HeavyAtomMolWt")
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
    *(*CRIPPEN, *SLOGP, *SMR, *PEOE, *ESTATE, *ESTATE_VSA, *VSA_ESTATE, *COUNTED, *SHAPE),
    *(name for name, _ in ONE_BY_ONE),
    *(*WEIGHTS, *FRAGMENTS),
)
"""Names of descriptors that are quick, finite for any molecule, and in every supported release."""
