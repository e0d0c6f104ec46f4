"""Reading of networks and their labels into stores of ego-networks."""

import shutil
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np
from filelock import FileLock
from jaxtyping import Float, Int

from graphlog.data.graphs import Reject
from graphlog.data.manifest import Source
from graphlog.data.store import GraphStore, RowCollector, StoreBuilder, bad_row, open_store
from graphlog.data.workers import check_workers, map_in_order
from graphlog.datasets import DATASETS, DatasetSpec
from graphlog.datasets.catalogue import PARTS, data_root
from graphlog.domains.base import DOMAINS, Reading
from graphlog.domains.protein.labels import (
    Functions,
    read_aliases,
    read_annotations,
    read_complexes,
    read_labels,
    read_ontology,
)
from graphlog.domains.protein.network import (
    ProteinNetwork,
    build_network,
    ego_networks,
    read_interactions,
)
from graphlog.domains.protein.schema import PROTEIN, ProteinOptions, details_of, species_of
from graphlog.errors import ConfigError, DataError, ModelFileError, check_name, setting
from graphlog.files import hash_file, hash_json

Files = str | Path | Sequence[str | Path]
Labeler = Callable[[Functions], None]
_CENTERS_PER_CHUNK = 1024
_NETWORK_FILE = "protein.links"


@dataclass(frozen=True, kw_only=True, eq=False)
class ProteinReading(Reading):
    """Options by which ego-networks are cut and labeled; ``targets`` must be None."""

    annotations: Files | None = None
    """GO annotation files; labels are chosen from their terms."""
    go: str | Path | None = None
    """OBO file of the Gene Ontology, needed for ``annotations``."""
    aliases: Files | None = None
    """Alias files of STRING, for annotations that use other names than the networks."""
    labels: str | Path | Labeler | None = None
    """Table of labels, used instead of annotations; or a function that sets the labels."""
    species: str | int | None = None
    """Taxon of network files that do not contain it."""
    cutting: ProteinOptions = field(default_factory=ProteinOptions)
    """Thresholds, limits and choice of labels; :meth:`of` takes its fields by name."""

    def __post_init__(self) -> None:
        """Check that the options fit together."""
        super().__post_init__()
        has_annotations, has_go = self.annotations is not None, self.go is not None
        has_two_sources = self.labels is not None and has_annotations
        if self.targets or has_annotations != has_go or has_two_sources:
            raise ConfigError(
                f"networks have no label columns: give either {setting('labels')} (a table), or "
                f"{setting('annotations')} and {setting('go')} (the GO graph); choose "
                f"{setting('targets')} when fine-tuning.",
                option="labels",
            )

    @classmethod
    def names(cls) -> frozenset[str]:
        """Return the names of the options that :meth:`of` takes."""
        return super().names() - {"cutting"} | frozenset(ProteinOptions.model_fields)

    @classmethod
    def of(cls, options: Mapping[str, Any]) -> Self:
        """Return a reading with these options, which include those of :class:`ProteinOptions`."""
        given = {k: v for k, v in options.items() if v is not None}
        cutting = {k: given.pop(k) for k in ProteinOptions.model_fields if k in given}
        return super().of({**given, "cutting": ProteinOptions.parse(cutting)})

    @property
    def protein_options(self) -> list[str]:
        """Names of the given options that only proteins have."""
        names = ("annotations", "go", "aliases", "labels", "species")
        given = [name for name in names if getattr(self, name) is not None]
        return given + sorted(self.cutting.model_fields_set)


class NetworkFile(NamedTuple):
    """A network file, and its taxon and options in the catalog."""

    path: Path
    """Path of the file."""
    species: str | None = None
    """Taxon of a network whose file does not contain it; None if unknown."""
    options: ProteinOptions = ProteinOptions()
    """Options by which a named network is cut by default."""


def as_list(files: Files | None) -> list[str | Path]:
    """Return one file, several files or None as a list."""
    if files is None:
        return []
    return [files] if isinstance(files, str | Path) else list(files)


def network_files(source: Files, data_dir: Path | str | None = None) -> list[NetworkFile]:
    """Return the network files that ``source`` names: files, folders of files, or data sets."""
    files: list[NetworkFile] = []
    proteins = (spec for spec in DATASETS.values() if spec.domain == PROTEIN.domain)
    known = {spec.name: spec for spec in proteins if not details_of(spec).networks}
    for name in map(str, as_list(source)):
        path = Path(name)
        if path.is_dir():
            in_folder = [NetworkFile(p) for p in sorted(path.iterdir()) if _NETWORK_FILE in p.name]
            if not in_folder:
                expected = f"no network file (*{_NETWORK_FILE}.detailed*)"
                raise DataError(f"{path}: holds {expected}; name the files themselves.")
            files += in_folder
        elif path.exists() or (path.suffix and name not in known):
            files.append(NetworkFile(path))
        else:
            check_name("network file or data set", name, known)
            details = details_of(known[name])
            local = DOMAINS[PROTEIN.domain].fetch(known[name], data_dir)
            files.append(NetworkFile(local, details.taxon, details.options))
    if not files:
        raise DataError("there is no network to read; name at least one file.")
    return files


def read_proteins(source: Files, reading: ProteinReading) -> GraphStore:
    """Return a store with the ego-network of every protein of some networks.

    The text of a graph is ``<taxon>.<name>``, and its node 0 is the center. Rows are the proteins
    in the order of the files, sorted by name within each file. Names and terms in files of labels
    that no network or ontology contains are in ``source.unmatched`` of the store.

    Raises:
        DataError: If a file cannot be read; the message names the file and the line.
        ConfigError: If a network is unknown.
    """
    cutting = reading.cutting
    files = network_files(source, reading.data_dir)
    load = partial(_load, species=reading.species, options=cutting)
    pieces = ((None, file) for file in files)
    loaded = map_in_order(load, pieces, check_workers(reading.workers))
    networks = [network for _, network in loaded]
    paths: dict[str, Path] = {}
    for file, network in zip(files, networks, strict=True):
        if network.species in paths:
            problem = f"is of species {network.species}, and so is {paths[network.species]}"
            raise DataError(f"{file.path}: {problem}; give each species one file.")
        paths[network.species] = file.path
    proteins = [name for network in networks for name in network.proteins]
    functions = _label_proteins(proteins, reading)
    origin = Source(
        name=", ".join(file.path.name for file in files[:5]),
        cutting=cutting.model_dump(mode="json"),
        networks={network.species: network.counts for network in networks},
        annotations=functions.counts,
        unmatched=functions.unmatched,
    )
    if functions.unmatched and reading.on_error == "fail":
        text, reason = next(iter(functions.unmatched.items()))
        raise bad_row(f"{origin.name}: {text[:80]!a}", reason)
    with StoreBuilder(
        PROTEIN, reading.store_path, functions.tasks, origin, reading.overwrite
    ) as builder:
        collector = RowCollector(builder, origin.name, reading.on_error, reading.progress, "row")
        values = functions.values
        for network in networks:
            labels, values = np.split(values, [len(network.proteins)])
            _add_network(collector, network, labels, reading)
        return builder.finish()


def _load(file: NetworkFile, species: str | int | None, options: ProteinOptions) -> ProteinNetwork:
    taxon = file.species if species is None else str(species)
    return build_network(read_interactions(file.path, taxon), options)


def _label_proteins(proteins: Sequence[str], reading: ProteinReading) -> Functions:
    """Return the labels of the proteins; without files of labels, there are no functions."""
    functions = Functions(proteins, read_aliases(as_list(reading.aliases)))
    if callable(reading.labels):
        reading.labels(functions)
    elif reading.labels is not None:
        read_labels(functions, reading.labels, reading.cutting)
    elif reading.annotations is not None:
        ontology = read_ontology(str(reading.go))
        read_annotations(functions, as_list(reading.annotations), ontology, reading.cutting)
    return functions


def _add_network(
    collector: RowCollector,
    network: ProteinNetwork,
    labels: Float[np.ndarray, "N T"],
    reading: ProteinReading,
) -> None:
    """Add the ego-networks of a network; ``labels`` has a row for each of its proteins."""
    proteins, first_row = np.arange(len(network.proteins))[: reading.limit], collector.done
    is_kept = (network.degrees[proteins] > 0) | (reading.cutting.isolated == "keep")
    reason = "has no interaction that reaches the thresholds"
    rejected = np.flatnonzero(~is_kept).tolist()
    rejects = [Reject(first_row + p, network.proteins[p], reason) for p in rejected]
    collector.add(None, rejects, len(rejects))
    usable = proteins[is_kept]
    for k in range(0, len(usable), _CENTERS_PER_CHUNK):
        centers = usable[k : k + _CENTERS_PER_CHUNK]
        chunk = replace(
            ego_networks(network, centers, reading.cutting),
            rows=first_row + centers,
            labels=labels[centers] if labels.shape[1] else None,
        )
        collector.add(chunk, (), len(centers))


_ONTOLOGY = "go-graph"
"""Name of the ontology in the catalog."""
_VERSION = 3
"""Version of cutting and labeling; a new version rebuilds the stores of named sets."""


def open_named_proteins(name: str, reading: Reading | None = None) -> GraphStore:
    """Return the ego-networks of a named network or labeled set; only the first call cuts them.

    Proteins without annotations are included, for pre-training; their labels are NaN.

    Raises:
        ConfigError: If the name is unknown.
        DataError: If a file that it is made from cannot be found.
    """
    known = {n: spec for n, spec in DATASETS.items() if spec.domain == PROTEIN.domain}
    check_name("network or set of proteins", name, known)
    spec, reading = known[name], reading or Reading()
    details, domain = details_of(spec), DOMAINS[PROTEIN.domain]
    files = {part.name: domain.fetch(part, reading.data_dir) for part in parts(spec)}
    inputs = [
        _VERSION,
        name,
        details.labeling,
        details.options.model_dump(mode="json"),
        {part: hash_file(path) for part, path in sorted(files.items())},
    ]
    folder = data_root(reading.data_dir) / "stores"
    path = folder / f"{name}-{hash_json(inputs)[:16]}"
    with suppress(ModelFileError):
        return open_store(path)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with FileLock(folder / f".{name}.lock"):
            with suppress(ModelFileError):
                return open_store(path)  # another process has built it in the meantime
            if path.exists():
                shutil.rmtree(path)  # it is damaged, and can be built again from the files
            cutting = replace(
                _labeling(spec, files),
                cutting=details.options,
                data_dir=reading.data_dir,
                store_path=path,
                progress=reading.progress,
                workers=reading.workers,
            )
            return read_proteins(details.networks or (name,), cutting)
    except OSError as e:
        raise DataError(
            f"{folder}: cannot be written ({e.strerror}); choose another folder with "
            f"{setting('data_dir')} or $GRAPHLOG_DATA.",
            option="data_dir",
        ) from None


def parts(spec: DatasetSpec) -> list[DatasetSpec]:
    """Return all files that a network or labeled set is made from, its own file first."""
    details = details_of(spec)
    # without details, a spec is that of a table alone, not of the store made from it
    files = [spec.updated({"details": {}})] if spec.path else []
    files += [DATASETS[name] for name in details.networks]
    if details.label_file:
        table = next(s for s in DATASETS.values() if s.path == details.label_file)
        files.append(table.updated({"details": {}}))
    if details.labeling == "go":
        names = [f"{kind}-{taxon}" for kind in ("gaf", "aliases") for taxon in _taxa(spec)]
        files += [PARTS[name] for name in (_ONTOLOGY, *names)]
    return files


def first_of_each_species(store: GraphStore, limit: int) -> Int[np.ndarray, "M"]:
    """Return the indices of the first ``limit`` proteins of each species, ascending."""
    species = np.array([species_of(name) or "" for name in store.texts()])
    first = [np.flatnonzero(species == taxon)[:limit] for taxon in np.unique(species)]
    return np.sort(np.concatenate(first))


def _taxa(spec: DatasetSpec) -> list[str]:
    return [name.removeprefix("string-") for name in details_of(spec).networks]


def _labeling(spec: DatasetSpec, files: dict[str, Path]) -> ProteinReading:
    """Return the sources of the labels of a named set; ``files`` are its parts by name."""
    match details_of(spec).labeling:
        case "go":
            annotations = [files[f"gaf-{taxon}"] for taxon in _taxa(spec)]
            aliases = [files[f"aliases-{taxon}"] for taxon in _taxa(spec)]
            return ProteinReading(annotations=annotations, aliases=aliases, go=files[_ONTOLOGY])
        case "complexes":
            annotated, complexes = files[spec.name], files["yeast-complexes"]
            fill = partial(read_complexes, annotated=annotated, complexes=complexes)
            return ProteinReading(labels=fill)
        case "table":
            return ProteinReading(labels=files[spec.name])
        case _:
            return ProteinReading()
