"""From files of networks and annotations to a store of ego-networks.

Those of named sets are cut once, kept in the data root, and opened in milliseconds later.
"""

import hashlib
import json
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np
from filelock import FileLock
from jaxtyping import Int

from graphlog.data.graphs import Reject
from graphlog.data.manifest import Source
from graphlog.data.store import GraphStore, RowCollector, StoreBuilder, open_store
from graphlog.data.workers import check_workers, map_in_order
from graphlog.datasets import DATASETS, DatasetSpec
from graphlog.datasets.catalogue import PARTS, data_root, fetch
from graphlog.domains.base import Reading
from graphlog.domains.protein.labels import (
    Functions,
    NameIndex,
    annotated_functions,
    complex_membership,
    read_aliases,
    read_ontology,
    tabled_functions,
)
from graphlog.domains.protein.network import (
    ProteinNetwork,
    build_network,
    ego_networks,
    read_interactions,
)
from graphlog.domains.protein.schema import PROTEIN, ProteinOptions, details_of, species_of
from graphlog.errors import (
    ConfigError,
    DataError,
    ModelFileError,
    check_name,
    setting,
    unknown_name,
)
from graphlog.files import hash_file, open_text

Files = str | Path | Sequence[str | Path]
Labeler = Callable[[Sequence[str]], Functions]
_CENTERS_PER_CHUNK = 1024
_NETWORK_FILE = "protein.links"


@dataclass(frozen=True, kw_only=True, eq=False)
class ProteinReading(Reading):
    """How ego-networks are cut and labeled; networks have no label columns to be targets."""

    annotations: Files | None = None
    """GO annotation files, from which labels are chosen."""
    go: str | Path | None = None
    """The GO graph for them, an OBO file."""
    aliases: Files | None = None
    """STRING's alias files, where annotations use other names than the networks."""
    labels: str | Path | Labeler | None = None
    """Instead of annotations, a table of labels, or a function from the names of the proteins to
    labels."""
    species: str | int | None = None
    """Taxon of network files that do not tell it."""
    cutting: ProteinOptions = field(default_factory=ProteinOptions)
    """Thresholds, caps and choice of labels; :meth:`of` takes its fields by name."""

    def __post_init__(self) -> None:
        """Check what goes together."""
        super().__post_init__()
        if self.targets:
            raise ConfigError(
                f"networks have no label columns; give {setting('labels')} or "
                f"{setting('annotations')}, and choose targets when fine-tuning.",
                option="labels",
            )
        if self.annotations is not None and self.labels is not None:
            raise ConfigError(
                f"{setting('annotations')} and {setting('labels')} both define the labels; give "
                "one of them.",
                option="annotations",
            )
        if (self.annotations is None) != (self.go is None):
            raise ConfigError(
                f"{setting('annotations')} and {setting('go')} (the GO graph) go together; give "
                "both or neither.",
                option="annotations",
            )

    @classmethod
    def names(cls) -> frozenset[str]:
        """Return the names of the options that :meth:`of` takes."""
        return super().names() - {"cutting"} | frozenset(ProteinOptions.model_fields)

    @classmethod
    def of(cls, options: Mapping[str, Any]) -> Self:
        """Return these options, those of :class:`ProteinOptions` among them."""
        how = {k: v for k, v in options.items() if v is not None}
        cutting = {k: how.pop(k) for k in ProteinOptions.model_fields if k in how}
        return super().of({**how, "cutting": ProteinOptions.parse(cutting)})

    @property
    def own(self) -> list[str]:
        """Names of the options, among those of proteins alone, that are given."""
        names = ("annotations", "go", "aliases", "labels", "species")
        given = [name for name in names if getattr(self, name) is not None]
        return given + sorted(self.cutting.model_fields_set)


class NetworkFile(NamedTuple):
    """One network."""

    path: Path
    """Its file."""
    species: str | None = None
    """Its taxon, if known although the file does not tell it."""
    options: ProteinOptions = ProteinOptions()
    """How a named network is usually cut."""


def as_list(files: Files | None) -> list[str | Path]:
    """Return the files as a list."""
    return [] if files is None else [files] if isinstance(files, str | Path) else list(files)


def network_files(source: Files, data_dir: Path | str | None = None) -> list[NetworkFile]:
    """Return the network files that ``source`` names.

    Args:
        source: Files, folders (whose files come sorted), and names of data sets.
        data_dir: Where downloads are kept.

    Raises:
        DataError: If a folder holds none, or there is nothing to read.
        ConfigError: If a name is unknown.
    """
    files: list[NetworkFile] = []
    for one in as_list(source):
        path = Path(one)
        if path.is_dir():
            in_folder = [NetworkFile(p) for p in sorted(path.iterdir()) if _NETWORK_FILE in p.name]
            if not in_folder:
                expected = f"no network file (*{_NETWORK_FILE}.detailed*)"
                raise DataError(f"{path}: holds {expected}; name the files themselves.")
            files += in_folder
        elif str(one) in networks() and not path.exists():
            spec = networks()[str(one)]
            local, details = fetch(spec, data_dir, verify_file), details_of(spec)
            files.append(NetworkFile(local, details.taxon, details.options))
        elif not path.exists() and not path.suffix:
            raise unknown_name("network file or data set", str(one), networks())
        else:
            files.append(NetworkFile(path))
    if not files:
        raise DataError("there is no network to read; name at least one file.")
    return files


def networks() -> dict[str, DatasetSpec]:
    """Return every named network."""
    proteins = (spec for spec in DATASETS.values() if spec.domain == PROTEIN.domain)
    return {spec.name: spec for spec in proteins if not details_of(spec).networks}


def verify_file(path: Path, spec: DatasetSpec) -> bool:
    """Return whether a file without a pinned sha256 is complete and begins as ``spec`` says."""
    try:
        with open_text(path) as lines:
            header = " ".join(next(lines, "").split())
            # read to the end: a truncated archive is an error only there
            return header.startswith(details_of(spec).begins) and sum(1 for _ in lines) > 0
    except DataError:
        return False


def read_proteins(source: Files, reading: ProteinReading) -> GraphStore:
    """Return a store with the ego-network of every protein of some networks.

    The text of a graph is ``<taxon>.<name>``, and its node 0 is the center. Rows are the proteins
    in the order of the files, sorted by name within each. They are followed by rejected rows for
    names and terms of annotation files that no network or ontology contains.

    Args:
        source: Network files (one for each species), a folder of them, or names of data sets
            (``string-6239``).
        reading: How.

    Raises:
        DataError: Naming file and line, if something cannot be read.
        ConfigError: If a network is unknown.
    """
    settings = reading.cutting
    files = network_files(source, reading.data_dir)
    taxon = None if reading.species is None else str(reading.species)
    load = partial(_load, species=taxon, options=settings)
    pieces = ((None, file) for file in files)
    workers = check_workers(reading.workers)
    networks = [made for _, made in map_in_order(load, pieces, workers)]
    _check_species(files, networks)
    functions = _functions([name for network in networks for name in network.proteins], reading)
    origin = Source(
        name=", ".join(file.path.name for file in files[:5]),
        cutting=settings.model_dump(mode="json"),
        networks={network.species: network.counts for network in networks},
        annotations=functions.counts if functions else {},
    )
    tasks = functions.tasks if functions else ()
    with StoreBuilder(PROTEIN, reading.store_path, tasks, origin) as builder:
        collector = RowCollector(builder, origin.name, reading.on_error, reading.progress, "row")
        start = 0
        for network in networks:
            _add_network(collector, network, start, functions, settings, reading.limit)
            start += len(network.proteins)
        unmatched = functions.unmatched.items() if functions else ()
        for row, (text, reason) in enumerate(unmatched, start=collector.done):
            collector.reject(Reject(row, text, reason))
        return builder.finish()


def _functions(proteins: Sequence[str], reading: ProteinReading) -> Functions | None:
    """Return the labels of the proteins; None where none are asked for."""
    labels, options = reading.labels, reading.cutting
    if callable(labels):
        return labels(proteins)
    if labels is None and reading.annotations is None:
        return None
    known: dict[str, str] = {}
    for file in as_list(reading.aliases):
        known |= read_aliases(file)
    index = NameIndex(proteins, known)
    if labels is not None:
        return tabled_functions(labels, proteins, index, options)
    ontology = read_ontology(str(reading.go))
    return annotated_functions(as_list(reading.annotations), proteins, index, ontology, options)


def _load(file: NetworkFile, species: str | None, options: ProteinOptions) -> ProteinNetwork:
    return build_network(read_interactions(file.path, species or file.species), options)


def _check_species(files: Sequence[NetworkFile], networks: Sequence[ProteinNetwork]) -> None:
    first: dict[str, Path] = {}
    for file, network in zip(files, networks, strict=True):
        if network.species in first:
            other = f"is of species {network.species}, and so is {first[network.species]}"
            raise DataError(f"{file.path}: {other}; give each species one file.")
        first[network.species] = file.path


def _add_network(
    collector: RowCollector,
    network: ProteinNetwork,
    start: int,
    functions: Functions | None,
    options: ProteinOptions,
    limit: int | None,
) -> None:
    """Add the ego-networks of a network whose first protein is ``start`` in ``functions``."""
    proteins, first = np.arange(len(network.proteins))[:limit], collector.done
    values = functions.values[start + proteins] if functions else None
    is_kept = (network.degrees[proteins] > 0) | (options.isolated == "keep")
    reason = "has no interaction that reaches the thresholds"
    rejected = np.flatnonzero(~is_kept).tolist()
    rejects = [Reject(first + p, network.proteins[p], reason) for p in rejected]
    collector.add(None, rejects, len(rejects))
    usable = proteins[is_kept]
    for k in range(0, len(usable), _CENTERS_PER_CHUNK):
        centers = usable[k : k + _CENTERS_PER_CHUNK]
        labels = None if values is None else values[centers]
        chunk = ego_networks(network, centers, options)
        collector.add(replace(chunk, rows=first + centers, labels=labels), (), len(centers))


_ONTOLOGY = "go-graph"
_VERSION = 1
"""Increase when ego-networks are cut or labeled in another way, so that stores are built again."""


def open_named_proteins(name: str, reading: Reading | None = None) -> GraphStore:
    """Return the ego-networks of a named network or labeled set; only the first call cuts them.

    The labels of proteins without annotation are NaN; they are there to pre-train on.

    Args:
        name: Name of the network or set.
        reading: Where downloads and stores are kept, the number of workers, and what follows them.

    Raises:
        ConfigError: If there is none of that name.
        DataError: If a file that it is made from cannot be found.
    """
    known = {n: spec for n, spec in DATASETS.items() if spec.domain == PROTEIN.domain}
    check_name("network or set of proteins", name, known)
    spec, how = known[name], reading or Reading()
    files = {part.name: fetch(part, how.data_dir, verify_file) for part in parts(spec)}
    folder = data_root(how.data_dir) / "stores"
    path = folder / f"{name}-{_key(spec, files)}"
    store = _open(path)
    if store is not None:
        return store
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with FileLock(folder / f".{name}.lock"):
            store = _open(path)  # another process may have built it meanwhile
            if store is None:
                if path.exists():
                    shutil.rmtree(path)  # damaged; all it is made from is here
                cut = replace(
                    _labeling(spec, files),
                    data_dir=how.data_dir,
                    store_path=path,
                    progress=how.progress,
                    workers=how.workers,
                )
                store = read_proteins(list(details_of(spec).networks or (name,)), cut)
            return store
    except OSError as e:
        raise DataError(
            f"{folder}: cannot be written ({e.strerror}); choose another folder with "
            f"{setting('data_dir')} or $GRAPHLOG_DATA.",
            option="data_dir",
        ) from None


def parts(spec: DatasetSpec) -> list[DatasetSpec]:
    """Return every file that a network or labeled set is made from, its own file first."""
    details = details_of(spec)
    own = [spec.updated({"details": {}})] if spec.path else []
    others = [DATASETS[name] for name in details.networks]
    if details.label_file:
        others.append(next(s for s in DATASETS.values() if s.path == details.label_file))
    if details.labeling == "go":
        names = [_ONTOLOGY]
        names += [f"{kind}-{taxon}" for kind in ("gaf", "aliases") for taxon in _taxa(spec)]
        others += [PARTS[name] for name in names]
    return [*own, *others]


def first_of_each_species(store: GraphStore, limit: int) -> Int[np.ndarray, "M"]:
    """Return the first ``limit`` proteins of each species, in their order."""
    species = np.array([species_of(name) or "" for name in store.texts()])
    firsts = [np.flatnonzero(species == taxon)[:limit] for taxon in np.unique(species)]
    return np.sort(np.concatenate(firsts))


def _taxa(spec: DatasetSpec) -> list[str]:
    return [name.removeprefix("string-") for name in details_of(spec).networks]


def _labeling(spec: DatasetSpec, files: dict[str, Path]) -> ProteinReading:
    """Return how a named set is cut and labeled."""
    details = details_of(spec)
    labels: str | Path | Labeler | None = None
    match details.labeling:
        case "go":
            return ProteinReading(
                annotations=[files[f"gaf-{taxon}"] for taxon in _taxa(spec)],
                aliases=[files[f"aliases-{taxon}"] for taxon in _taxa(spec)],
                go=files[_ONTOLOGY],
                cutting=details.options,
            )
        case "complexes":
            labels = partial(complex_membership, files[spec.name], files["yeast-complexes"])
        case "table":
            labels = files[spec.name]
        case _:
            pass
    return ProteinReading(labels=labels, cutting=details.options)


def _key(spec: DatasetSpec, files: dict[str, Path]) -> str:
    details = details_of(spec)
    hashes = {name: hash_file(path) for name, path in sorted(files.items())}
    options = details.options.model_dump(mode="json")
    inputs = [_VERSION, spec.name, details.labeling, options, hashes]
    return hashlib.sha256(json.dumps(inputs, sort_keys=True).encode()).hexdigest()[:16]


def _open(path: Path) -> GraphStore | None:
    try:
        return open_store(path)
    except ModelFileError:
        return None
