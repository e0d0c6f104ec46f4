"""Molecules as a domain: SMILES, its schemas, scaffolds as groups, fingerprints as a baseline."""

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
from graphlog.data.split import Split
from graphlog.data.store import GraphStore, StoreBuilder
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
"""How molecules may be changed before they are read."""
_CALIBRATION_SET = "nci5k"
_ISOTOPE = re.compile(r"\[\d+")
"""The beginning of an atom in a SMILES that names its isotope."""
_LARGEST_DRAWN = 120
"""Atoms up to which a drawing can be read."""


@dataclass(frozen=True, kw_only=True, eq=False)
class MoleculeReading(TableReading):
    """How molecules are read."""

    exclude: str | Path | Sequence[str | Path] = ()
    """Files, or names of data sets, whose molecules are left out, whatever their salts, charges,
    stereo and isotopes; such rows are among the rejects, with a kind of their own."""
    standardize: str | None = None
    """``parent`` reads the parent of each molecule: its largest organic fragment but common
    counter-ions, neutral; ``parent-tautomer`` its canonical tautomer. Molecules without carbon, or
    with a metal that is not of groups 1 and 2, stay as they are written, as all do if None."""
    choices = {**TableReading.choices, "standardize": STANDARDIZE}  # noqa: RUF012 - constant


class MoleculeDomain(RecordDomain):
    """SMILES, RDKit molecules and SDF files to graphs; RDKit is imported when first needed."""

    name = "molecule"
    records = "molecules"
    shuffled_split = "random-scaffold"
    keeps_repeats_together = True
    text_name = "smiles"
    node_name = "heavy atoms"
    schemas = {  # noqa: RUF012 - constant
        s.name: s for s in (MOLECULE, MOLECULE_RICH, MOLECULE_CIP, MOLECULE_ISOTOPES)
    }
    targets = TARGETS
    head_layer = "jk+sum"  # what adds up over atoms is linear in it (docs/results/choices.md)
    feature_sets = {  # noqa: RUF012 - constant
        "ecfp4": tuple(f"ECFP4_{k}" for k in range(2048)),
        "descriptors": TARGETS,
    }
    example = "esol"
    reading = MoleculeReading

    # Input

    def featurizer(self, reading: Reading) -> Featurizer:
        """Return what parses, leaves out and standardizes molecules as ``reading`` says."""
        assert isinstance(reading, MoleculeReading)
        return partial(
            molecule.parse.featurize_smiles,
            standardize=reading.standardize,
            with_parents=reading.keep_texts,
            unwanted=self._keys_of(reading) if reading.exclude else None,
        )

    def _keys_of(self, reading: MoleculeReading) -> UInt64[np.ndarray, "K"]:
        """Return the keys of every molecule to exclude, sorted."""
        keys: list[np.ndarray] = []
        given = reading.exclude
        for file in map(str, [given] if isinstance(given, str | Path) else given):
            source = Input(name=file, path=Path(file))
            if file in DATASETS and not Path(file).exists():
                source = Input(name=file, spec=DATASETS[file])
                if DATASETS[file].domain != self.name:
                    raise ConfigError(
                        f"{setting('exclude')}: data set '{file}' holds "
                        f"{DOMAINS[DATASETS[file].domain].records}, not {self.records}.",
                        option="exclude",
                    )
            with self.open(source, TableReading(data_dir=reading.data_dir)) as table:
                texts = [row.record for row in table.rows]
                keys += spread_texts(molecule.parse.constitution_keys, texts, reading.workers)
        known = np.unique(np.concatenate(keys))
        return known[known > 0]

    def text_of(self, record: Any) -> str | None:
        """Return a SMILES, that of an RDKit molecule, or None."""
        if type(record).__module__.startswith("rdkit."):
            return molecule.sdf.smiles_of(record)
        return super().text_of(record)

    def recognizes(self, path: Path) -> bool:
        """Return whether a file is an SDF file by its name."""
        return path.name.lower().endswith(tuple(f".sdf{packed}" for packed in ("", *COMPRESSED)))

    def open_path(
        self, path: Path, wanted: str | None, sheet: str | None = None
    ) -> AbstractContextManager[Table]:
        """Open a table of SMILES, or an SDF file, whose data fields are the columns."""
        if self.recognizes(path):
            return molecule.sdf.open_sdf(path)
        return super().open_path(path, wanted, sheet)

    def sdf_writer(
        self, source: Input
    ) -> Callable[[Iterable[tuple[str, Mapping[str, str]]]], Iterator[str]]:
        """Return what makes SDF records: molecules of an SDF file as they are, others drawn."""
        if source.file is not None and self.recognizes(source.file):
            return partial(molecule.sdf.records_like, source.file)
        if source.store is not None and len(source.store) and not source.store.has_texts:
            raise DataError(
                f"{source.name} keeps no SMILES to write as SDF; choose another format, or build "
                "the store again with its texts."
            )
        return molecule.sdf.drawn_records

    def bundled(self, spec: DatasetSpec) -> Path | None:
        """Return the file of a data set that comes with this package or with RDKit."""
        if not spec.origin.startswith("rdkit"):
            path = BUNDLED / Path(spec.path).name
            return path if path.is_file() else None
        return rdkit_file(spec.origin, spec.path)

    def verify(self, path: Path, spec: DatasetSpec) -> bool:
        """Return whether a file holds the SMILES of a data set, in their order."""
        details = details_of(spec)
        delimiter = " " if spec.origin == "molsets" else ","
        try:
            with open_table(path, None, details.header, delimiter) as table:
                found = hash_smiles(row.record for row in table.rows)
        except DataError:
            return False
        return found in details.sha256_smiles

    # Folds

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
        """Return folds of whole scaffolds, or those of :meth:`Domain.split`."""
        if kind == "random" or (kind == "stratified" and classes is not None):
            return super().split(store, kind, fractions, seed, classes=classes)
        spec = None if source is None else source.spec
        # the folds of a data set are those that others publish scores of
        texts = _without_isotopes(store.parents()) if spec is None else store.texts()
        canonical = spec is None or details_of(spec).canonical_split
        return molecule.scaffolds.scaffold_split(texts, fractions, kind, seed, workers, canonical)

    def groups(self, store: GraphStore) -> list[str | None]:
        """Return the Bemis-Murcko scaffold of each molecule's parent, empty where it has no ring.

        Chirality is kept, isotopes are not.
        """
        texts = _without_isotopes(store.parents())
        return molecule.scaffolds.scaffolds(texts, canonical_first=True)

    def parents(self, store: GraphStore) -> GraphStore:
        """Return the graphs of the parents, in a schema in which a molecule has one form.

        That of the store, or ``molecule-cip``. The molecules themselves where it has no SMILES.
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
        own = store.chunks() if has_one_form else (chunk for chunk, _ in spread_texts(read, texts))
        chunk, _ = read([parents[k] for k in changed])
        with StoreBuilder(schema) as builder:
            first = 0
            for part in (*own, chunk):
                rows = np.arange(first, first + len(part))
                builder.add(replace(part, rows=rows, labels=None, texts=None, parents={}))
                first += len(part)
            both = builder.finish()
        assert len(both) == len(store) + len(chunk), "what one schema reads, every one reads"
        graphs = np.arange(len(store))
        graphs[np.array(changed, dtype=np.int64)[chunk.rows]] = np.arange(len(store), len(both))
        return both.subset(graphs)

    def reading_notes(self, store: GraphStore) -> list[str]:
        """Say which molecules have several fragments, or that this is not known."""
        if not store.has_texts:
            return [
                "the graphs have no SMILES: a salt or a charged form is not recognized as a repeat "
                "of its parent"
            ]
        is_several = ["." in text.split(maxsplit=1)[0] for text in store.texts()]
        rows = store.rows[np.flatnonzero(is_several)]
        if not len(rows):
            return []
        return [
            f"{len(rows):,} of {len(store):,} molecules have several fragments, such as salts "
            f"(rows {listed_rows(rows)}): they are read as written, and repeats are recognized by "
            "the parent (largest organic fragment, neutral); to read the parent choose "
            f"{setting('standardize', 'parent')}"
        ]

    # What is known about graphs without learning

    def feature_set(self, name: str, store: GraphStore) -> BaselineFeatures:
        """Return ECFP4 fingerprints, or the descriptors in ``targets``, worked out in parallel."""
        match name:
            case "ecfp4":
                bits = molecule.descriptors.morgan_fingerprints(store.texts())
                return BaselineFeatures("ECFP4", bits, binary=True)
            case "descriptors":
                most = molecule.descriptors.MOST_DESCRIBED
                if len(large := store.rows[store.num_nodes > most]):
                    warnings.warn(
                        f"{len(large):,} molecules have more than {most:,} atoms (rows "
                        f"{listed_rows(large)}): their electrotopological descriptors are 0",
                        stacklevel=2,
                    )
                found = spread_texts(molecule.descriptors.target_values, store.texts())
                values = np.concatenate([np.empty((0, len(TARGETS)), np.float32), *found])
                return BaselineFeatures("descriptors", values)
            case _:
                return super().feature_set(name, store)

    def feature_counts(self, store: GraphStore) -> csr_matrix:
        """Return counts of ECFP4 environments."""
        return molecule.descriptors.morgan_counts(store.texts())

    def calibration_graphs(self, schema: FeatureSchema, limit: int) -> GraphStore:
        """Return the first molecules that come with RDKit."""
        source = Input(name=_CALIBRATION_SET, spec=DATASETS[_CALIBRATION_SET])
        return self.read(source, schema, MoleculeReading(keep_texts=False, limit=limit))

    def features(self, store: GraphStore) -> list[GraphFeature]:
        """Return numbers of atoms, properties, functional groups and frequent ring systems."""
        size, *_ = super().features(store)
        if not store.has_texts:
            return [size]
        return [size, *molecule.traits.traits(store.texts())]

    def draw(
        self,
        store: GraphStore,
        graphs: Sequence[int],
        width: int,
        height: int,
        weights: Sequence[Float[np.ndarray, "_"]] | None = None,
    ) -> list[str]:
        """Return structures, atoms colored by weights; empty for molecules too large to be read."""
        if not store.has_texts:
            return [""] * len(graphs)
        drawn, texts = [""] * len(graphs), store.texts(list(graphs))
        for k in np.flatnonzero(store.num_nodes[list(graphs)] <= _LARGEST_DRAWN).tolist():
            colors = None if weights is None else weights[k].tolist()
            with suppress(DataError):
                drawn[k] = molecule.drawing.draw_svg(texts[k], width, height, weights=colors)
        return drawn

    def node_fields(
        self, schema: FeatureSchema, x: Num[np.ndarray, "V F"]
    ) -> Mapping[str, Sequence[str]]:
        """Return the symbol of each atom's element, ``*`` where it has none."""
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
        """Return RDKit's version, and in which form it is given molecules."""
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


def rdkit_file(origin: str, path: str) -> Path:
    """Return a file below RDKit's folder of data (``rdkit-data``) or ``rdkit-contrib``."""
    from rdkit import RDConfig

    folder: str = RDConfig.RDContribDir if origin == "rdkit-contrib" else RDConfig.RDDataDir
    return Path(folder) / path


DOMAIN = MoleculeDomain()
"""What the table of domains looks up."""
