"""The domain of molecules: reading of SMILES, schemas, scaffold splits, fingerprint baselines."""

import re
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float, Float32, Int, Num, UInt64
from scipy.sparse import csr_matrix

from graphlog.data.graphs import FeatureSchema
from graphlog.data.manifest import is_store
from graphlog.data.split import Split
from graphlog.data.store import GraphStore, StoreBuilder, open_store
from graphlog.data.tables import Table, listed_rows, open_table
from graphlog.data.workers import spread_texts
from graphlog.datasets import BUNDLED, DATASETS, DatasetSpec
from graphlog.domains import molecule
from graphlog.domains.base import (
    DOMAINS,
    BaselineFeatures,
    CommonPart,
    GraphFeature,
    Input,
    Reading,
)
from graphlog.domains.molecule.schema import (
    ATOM,
    MOLECULE,
    MOLECULE_CIP,
    MOLECULE_ISOTOPES,
    MOLECULE_RICH,
    TARGETS,
    WILDCARD,
)
from graphlog.domains.records import Featurizer, RecordDomain, TableReading, details_of, hash_smiles
from graphlog.errors import ConfigError, DataError, setting
from graphlog.files import COMPRESSED

STANDARDIZE = ("parent", "parent-tautomer")
"""Values of the option ``standardize``."""
_CALIBRATION_SET = "nci5k"
_ISOTOPE = re.compile(r"\[\d+")
"""Pattern of the beginning of an atom in a SMILES that names its isotope."""
_MAX_DRAWN_ATOMS = 120
"""Largest number of atoms of a molecule that is drawn; a larger drawing is not legible."""


@dataclass(frozen=True, kw_only=True, eq=False)
class MoleculeReading(TableReading):
    """Options of reading molecules."""

    exclude: str | Path | Sequence[str | Path] = ()
    """Files, stores or names of data sets whose molecules are left out, also as other salts,
    charged forms, stereoisomers and isotopes. Such rows are among the rejects, with kind
    ``EXCLUDED``."""
    standardize: str | None = None
    """``parent`` reads the parent of each molecule (the largest organic fragment that is not a
    common counter-ion, neutral), ``parent-tautomer`` the canonical tautomer of the parent. None
    reads molecules as written, as are always those without carbon or with a metal that is not of
    groups 1 and 2."""
    choices = {**TableReading.choices, "standardize": STANDARDIZE}  # noqa: RUF012 - constant


class MoleculeDomain(RecordDomain):
    """Molecules, read from SMILES, RDKit molecules or SDF files; imports RDKit on first use."""

    name = "molecule"
    records = "molecules"
    shuffled_split = "random-scaffold"
    keeps_repeats_together = True
    text_name = "smiles"
    node_name = "heavy atoms"
    group_name = "scaffold"
    schemas = {  # noqa: RUF012 - constant
        s.name: s for s in (MOLECULE, MOLECULE_RICH, MOLECULE_CIP, MOLECULE_ISOTOPES)
    }
    targets = TARGETS
    head_layer = "jk+sum"  # sums over atoms are linear in it (docs/results/choices.md)
    feature_sets = {  # noqa: RUF012 - constant
        "ecfp4": tuple(f"ECFP4_{k}" for k in range(2048)),
        "descriptors": TARGETS,
    }
    example = "esol"
    reading = MoleculeReading

    # Input

    def featurizer(self, reading: Reading) -> Featurizer:
        """Return a function that parses, excludes and standardizes molecules."""
        assert isinstance(reading, MoleculeReading)
        return partial(
            molecule.parse.featurize_smiles,
            standardize=reading.standardize,
            with_parents=reading.keep_texts,
            unwanted=self._excluded_keys(reading) if reading.exclude else None,
        )

    def _excluded_keys(self, reading: MoleculeReading) -> UInt64[np.ndarray, "K"]:
        """Return the sorted keys of all molecules to exclude."""
        keys: list[np.ndarray] = []
        given = reading.exclude
        for name in map(str, [given] if isinstance(given, str | Path) else given):
            source = Input(name=name, path=Path(name))
            if name in DATASETS and not Path(name).exists():
                source = Input(name=name, spec=DATASETS[name])
                if DATASETS[name].domain != self.name:
                    raise ConfigError(
                        f"{setting('exclude')}: data set '{name}' holds "
                        f"{DOMAINS[DATASETS[name].domain].records}, not {self.records}.",
                        option="exclude",
                    )
            if is_store(source.path):
                texts = open_store(source.path).texts()
            else:
                with self.open(source, TableReading(data_dir=reading.data_dir)) as table:
                    texts = [row.record for row in table.rows]
            found = spread_texts(molecule.parse.constitution_keys, texts, reading.workers)
            keys.append(np.concatenate([np.empty(0, np.uint64), *found]))
            unreadable = int(np.count_nonzero(keys[-1] == 0))
            if 2 * unreadable > len(texts):
                raise DataError(
                    f"{name}: {unreadable:,} of {len(texts):,} rows cannot be read, so this is "
                    f"probably the wrong column or file for {setting('exclude')}; write the "
                    "molecules in a column named smiles.",
                    option="exclude",
                )
        unique = np.unique(np.concatenate(keys))
        return unique[unique > 0]

    def text_of(self, record: Any) -> str | None:
        """Return the SMILES of a text or RDKit molecule; None for another object."""
        if type(record).__module__.startswith("rdkit."):
            return molecule.sdf.smiles_of(record)
        return super().text_of(record)

    def recognizes(self, path: Path) -> bool:
        """Return whether a file has the name of an SDF file."""
        return path.name.lower().endswith(tuple(f".sdf{packed}" for packed in ("", *COMPRESSED)))

    def open_path(
        self, path: Path, wanted: str | None, sheet: str | None = None
    ) -> AbstractContextManager[Table]:
        """Open a table of SMILES, or an SDF file with its data fields as columns."""
        if self.recognizes(path):
            if wanted is not None:
                raise self.no_choice(str(path))
            return molecule.sdf.open_sdf(path)
        return super().open_path(path, wanted, sheet)

    def sdf_writer(
        self, source: Input
    ) -> Callable[[Iterable[tuple[str, Mapping[str, str]]]], Iterator[str]]:
        """Return a function that makes SDF records.

        Molecules of an SDF file stay as they are; others get coordinates in two dimensions.
        """
        if source.file is not None and self.recognizes(source.file):
            return partial(molecule.sdf.records_like, source.file)
        if source.store is not None and len(source.store) and not source.store.has_texts:
            raise DataError(
                f"{source.name} keeps no SMILES to write as SDF; choose another format, or build "
                "the store again with its texts."
            )
        return molecule.sdf.drawn_records

    def bundled(self, spec: DatasetSpec) -> Path | None:
        """Return the file of a data set that this package or RDKit contains, else None."""
        if spec.origin != "rdkit":
            path = BUNDLED / Path(spec.path).name
            return path if path.is_file() else None
        return rdkit_file(spec.path)

    def verify(self, path: Path, spec: DatasetSpec) -> bool:
        """Return whether a file holds the SMILES of a data set, in their order."""
        details = details_of(spec)
        delimiter = " " if spec.origin == "molsets" else ","
        try:
            with open_table(path, None, details.header, delimiter) as table:
                return hash_smiles(row.record for row in table.rows) in details.sha256_smiles
        except DataError:
            return False

    # Splits

    def default_split(self, store: GraphStore, task: str | None) -> str:
        """Return ``scaffold``."""
        return "scaffold"

    def split(
        self,
        store: GraphStore,
        kind: str,
        fractions: Sequence[float],
        seed: int,
        *,
        source: Input | None = None,
        classes: Int[np.ndarray, "M"] | None = None,
        workers: int | None = None,
        **options: Any,
    ) -> Split:
        """Return a split by scaffolds, or a random or stratified one of :meth:`Domain.split`."""
        if kind == "random" or (kind == "stratified" and classes is not None):
            return super().split(store, kind, fractions, seed, classes=classes)
        spec = None if source is None else source.spec
        # a data set is split by its SMILES as written, as in published work
        texts = _without_isotopes(store.parents()) if spec is None else store.texts()
        canonical = spec is None or details_of(spec).canonical_split
        return molecule.scaffolds.scaffold_split(texts, fractions, kind, seed, workers, canonical)

    def groups(self, store: GraphStore) -> list[str | None]:
        """Return the Bemis-Murcko scaffold of each molecule's parent; empty if it has no ring.

        Scaffolds keep chirality but not isotopes.
        """
        texts = _without_isotopes(store.parents())
        return molecule.scaffolds.scaffolds(texts, canonical_first=True)

    def parents(self, store: GraphStore) -> GraphStore:
        """Return the graphs of the parents, in a schema in which each molecule has one graph.

        This is the schema of the store, or else ``molecule-cip``. A store without SMILES is
        returned unchanged.
        """
        if not store.has_texts:
            return store
        texts, parents = store.texts(), store.parents()
        changed = [k for k, text in enumerate(texts) if text != parents[k]]
        has_one_form = store.schema in (MOLECULE_CIP, MOLECULE_ISOTOPES)
        if has_one_form and not changed:
            return store
        schema = store.schema if has_one_form else MOLECULE_CIP
        read = partial(molecule.parse.featurize_smiles, schema=schema, with_parents=False)
        graphs = store.chunks() if has_one_form else (g for g, _ in spread_texts(read, texts))
        parent_graphs, _ = read([parents[k] for k in changed])
        with StoreBuilder(schema) as builder:
            first = 0
            for chunk in (*graphs, parent_graphs):
                rows = np.arange(first, first + len(chunk))
                builder.add(replace(chunk, rows=rows, labels=None, texts=None, parents={}))
                first += len(chunk)
            both = builder.finish()
        assert first == len(store) + len(parent_graphs), "a molecule can be read in every schema"
        indices = np.arange(len(store))
        replaced = np.array(changed, dtype=np.int64)[parent_graphs.rows]
        indices[replaced] = np.arange(len(store), len(both))
        return both.subset(indices)

    def reading_notes(self, store: GraphStore) -> list[str]:
        """Return a note on missing SMILES."""
        note = (
            "the graphs have no SMILES: a salt or a charged form is not recognized as a repeat of "
            "its parent"
        )
        return [] if store.has_texts else [note]

    def salts(self, store: GraphStore) -> Int[np.ndarray, "S"]:
        """Return the molecules with several fragments that were read as written."""
        is_known = store.has_texts and store.source.standardize is None
        texts = store.texts() if is_known else []
        return np.flatnonzero(["." in text.split(maxsplit=1)[0] for text in texts])

    # Properties that are computed without learning

    def feature_set(self, name: str, store: GraphStore) -> BaselineFeatures:
        """Return ECFP4 fingerprints, or the descriptors in ``targets``, computed in parallel."""
        match name:
            case "ecfp4":
                bits = molecule.descriptors.morgan_fingerprints(store.texts())
                return BaselineFeatures("ECFP4", bits, binary=True)
            case "descriptors":
                limit = molecule.descriptors.MAX_ESTATE_ATOMS
                if len(large := store.rows[store.num_nodes > limit]):
                    warnings.warn(
                        f"{len(large):,} molecules have more than {limit:,} atoms (rows "
                        f"{listed_rows(large)}): their electrotopological descriptors are 0",
                        stacklevel=2,
                    )
                parts = spread_texts(molecule.descriptors.target_values, store.texts())
                values = np.concatenate([np.empty((0, len(TARGETS)), np.float32), *parts])
                return BaselineFeatures("descriptors", values)
            case _:
                return super().feature_set(name, store)

    def feature_counts(self, store: GraphStore) -> csr_matrix:
        """Return counts of ECFP4 environments."""
        return molecule.descriptors.morgan_counts(store.texts())

    def calibration_graphs(self, schema: FeatureSchema, limit: int) -> GraphStore:
        """Return the first molecules of a data set that RDKit contains."""
        source = Input(name=_CALIBRATION_SET, spec=DATASETS[_CALIBRATION_SET])
        return self.read(source, schema, MoleculeReading(keep_texts=False, limit=limit))

    def features(self, store: GraphStore) -> list[GraphFeature]:
        """Return numbers of atoms, properties, functional groups and frequent ring systems."""
        size = super().features(store)[0]
        return [size, *(molecule.traits.traits(store.texts()) if store.has_texts else ())]

    def draw(
        self,
        store: GraphStore,
        graphs: Sequence[int],
        width: int,
        height: int,
        weights: Sequence[Float[np.ndarray, "_"]] | None = None,
    ) -> list[str]:
        """Return structures with atoms colored by weights; empty for very large molecules."""
        drawings = [""] * len(graphs)
        if not store.has_texts:
            return drawings
        texts = store.texts(list(graphs))
        for k in np.flatnonzero(store.num_nodes[list(graphs)] <= _MAX_DRAWN_ATOMS).tolist():
            colors = None if weights is None else weights[k].tolist()
            with suppress(DataError):
                drawings[k] = molecule.drawing.draw_svg(texts[k], width, height, weights=colors)
        return drawings

    def node_fields(
        self, schema: FeatureSchema, x: Num[np.ndarray, "V F"]
    ) -> Mapping[str, Sequence[str]]:
        """Return the symbol of each atom's element; ``*`` if it has no element."""
        from rdkit import Chem

        table = Chem.GetPeriodicTable()
        numbers = x[:, schema.node.index(ATOM)].tolist()
        return {
            "element": ["*" if z == WILDCARD else table.GetElementSymbol(z + 1) for z in numbers]
        }

    def common_part(
        self, store: GraphStore, graphs: Sequence[int], width: int, height: int
    ) -> CommonPart | None:
        """Return the largest common substructure, with whole rings."""
        if not store.has_texts:
            return None
        return molecule.drawing.common_part(store.texts(list(graphs)), width, height)

    # Descriptors

    def targets_version(self) -> str:
        """Return RDKit's version and the form of the molecules."""
        from rdkit import rdBase

        return f"{rdBase.rdkitVersion}, without isotopes"

    def target_values(self, records: Sequence[str]) -> Float32[np.ndarray, "N K"]:
        """Return the descriptors in ``targets`` of each SMILES; a NaN row where parsing fails."""
        return molecule.descriptors.target_values(records)

    def substructure_counts(self, records: Sequence[str]) -> csr_matrix:
        """Return log counts of Morgan environments, atom pairs and torsions of each SMILES."""
        return molecule.descriptors.count_fingerprints(records)


def _without_isotopes(smiles: Iterable[str]) -> list[str]:
    return [_ISOTOPE.sub("[", text) for text in smiles]


def rdkit_file(path: str) -> Path:
    """Return a file below RDKit's folder of data."""
    from rdkit import RDConfig

    return Path(RDConfig.RDDataDir) / path


DOMAIN = MoleculeDomain()
"""The instance that ``DOMAINS`` refers to."""
