"""Settings of pre-training, device, number format and random numbers.

Each random generator is seeded by the seed of the run and its place in the program, so that
checkpoints contain no state of generators.
"""

import hashlib
import os
import warnings
from collections.abc import Callable, Collection, Generator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

import tomli_w
import torch
from pydantic import Field

from graphlog import processes
from graphlog.config import FrozenConfig, merge, read_toml
from graphlog.data.graphs import FeatureSchema
from graphlog.data.store import GraphBatch
from graphlog.encoders import LAYERS
from graphlog.encoders.encoder import EmbeddingLayer, EncoderConfig, GraphEncoder, torch_globals
from graphlog.errors import (
    SEED_LIMIT,
    ConfigError,
    check_choice,
    check_name,
    out_of_range,
    setting,
    unknown_name,
)
from graphlog.objectives import OBJECTIVES
from graphlog.objectives.base import Objective

NumberFormat = Literal["fp32", "bf16"]
Precision = Literal["auto", "fp32", "bf16"]
Schedule = Literal["constant", "cosine"]
_TOP = ("recipe", "schema", "embedding")
"""Settings at the top of ``config.toml``, outside its tables."""
_PLUGINS = "plugins"
"""Table of the packages that a run needs besides graphlog."""
_TABLES = ("objective", "encoder", "training")
"""Tables of ``config.toml`` with settings."""
_IGNORED = ("training.checkpoint_every_s", "training.targets_from")
"""Settings that may change when a run is resumed; target vectors are compared by their digest."""

with warnings.catch_warnings():
    # `schema` shadows a deprecated method of pydantic
    warnings.filterwarnings("ignore", message='Field name "schema"', category=UserWarning)

    class PretrainConfig(FrozenConfig):
        """Settings of a pre-training run: with the graphs, they determine the result."""

        objective: str = "graphlog"
        """Name of the pretext task, a key of ``OBJECTIVES``."""
        recipe: str = "default"
        """Name of the recipe that gave the default settings."""
        schema: str = "molecule"  # pyright: ignore[reportIncompatibleMethodOverride, reportAssignmentType]
        """Name of the feature schema used to read raw inputs; a store has its own schema."""
        embedding: EmbeddingLayer = "jk"
        """Kind of graph embedding that the trained model returns by default."""
        epochs: int = Field(default=11, ge=1)
        """Number of passes over the graphs in all phases."""
        batch_size: int = Field(default=512, ge=2)
        """Number of graphs per step."""
        learning_rate: float = Field(default=1e-3, gt=0, allow_inf_nan=False)
        """Learning rate of Adam."""
        schedule: Schedule = "constant"
        """Learning rate: ``constant`` (paper and script) or ``cosine``, which decays to 0."""
        warmup: float = Field(default=0.0, ge=0, lt=1)
        """Share of the run over which the learning rate increases linearly to its value."""
        average: float = Field(default=0.0, ge=0, lt=1)
        """Decay of the moving average of weights that is the final model; 0: no average."""
        fresh_moments: bool = True
        """Whether each phase starts without the moments of Adam (script)."""
        seed: int = Field(default=0, ge=0, lt=SEED_LIMIT)
        """Seed of initial weights, the order of graphs, masks and samples."""
        precision: Precision = "auto"
        """Number format; ``auto``: bf16 if the hardware supports it, else fp32 (recorded)."""
        device: str = "auto"
        """Device: ``auto``, ``cpu``, ``cuda`` or ``cuda:N``."""
        checkpoint_every_s: float = Field(default=60.0, ge=0)
        """Seconds between checkpoints within an epoch."""
        log_every: int = Field(default=10, ge=1)
        """Number of steps averaged in one row of ``metrics.jsonl``."""
        watch_every: int = Field(default=50, ge=0)
        """Steps between two measurements of the collapse monitor; 0 turns it off."""
        targets_from: str | None = None
        """Path of an ``.npz`` file of vectors to predict instead of descriptors, such as the output
        of ``embed``, with one row for each row of the input."""
        targets_digest: str | None = None
        """SHA-256 of the standardized vectors, recorded by the run."""
        encoder: EncoderConfig = EncoderConfig.parse({})
        """Settings of the encoder."""
        options: dict[str, Any] = Field(default_factory=dict)
        """Settings of the objective, except those that are None."""

        def to_tables(self) -> dict[str, Any]:
            """Return the tables of ``config.toml``, the inverse of :func:`recorded_config`."""
            values = self.model_dump(exclude_none=True)
            tables = {key: values.pop(key) for key in _TOP}
            tables["objective"] = {"name": values.pop("objective"), **values.pop("options")}
            tables["encoder"] = values.pop("encoder")
            needed = OBJECTIVES.package(self.objective) | LAYERS.package(self.encoder.backbone)
            return {**tables, "training": values, **({_PLUGINS: needed} if needed else {})}

        def to_toml(self) -> str:
            """Return the text of ``config.toml``."""
            return tomli_w.dumps(self.to_tables())


def resolve_config(
    objective: str | None = None,
    recipe: str | None = None,
    overrides: Mapping[str, Any] | None = None,
    domain: str = "molecule",
) -> PretrainConfig:
    """Return the validated settings of a recipe with ``overrides``.

    If ``objective`` or ``recipe`` is None, it is taken from the overrides, else it is ``graphlog``
    or ``default``. The recipe ``default`` selects the objective's usual recipe for ``domain``.
    Overrides are nested tables as in ``config.toml``, or have dotted keys (``"encoder.dim"``);
    settings of ``training`` may also be at the top level.

    Raises:
        ConfigError: If an objective, recipe or key is unknown, or a value is invalid.

    Example:
        >>> resolve_config("graphlog", "default", {"encoder.dim": 64, "epochs": 2}).encoder.dim
        64
    """
    tables = _arrange(overrides or {})
    name = objective or tables["objective"].get("name", "graphlog")
    kind = _objective_class(name, tables)
    recipe_name = recipe or tables.get("recipe", "default")
    if recipe_name == "default":
        recipe_name = kind.recipe_for(domain)
    check_name(f"recipe of {name}", recipe_name, kind.RECIPES)
    names = {"objective": {"name": name}, "recipe": recipe_name}
    return _config_from_tables(merge(merge(_arrange(kind.RECIPES[recipe_name]), tables), names))


def _config_from_tables(tables: dict[str, Any]) -> PretrainConfig:
    """Return the settings in nested tables; missing ones have their default, not the recipe's."""
    options = dict(tables["objective"])
    name = options.pop("name", "graphlog")
    kind = _objective_class(name, tables)
    LAYERS.check_installed(tables["encoder"].get("backbone", "gin"), tables.get(_PLUGINS, {}))
    parsed = kind.Config.parse(options, "objective.")
    return PretrainConfig.parse(
        {
            **{key: tables[key] for key in _TOP if key in tables},
            **tables["training"],
            "objective": name,
            "encoder": EncoderConfig.parse(tables["encoder"], "encoder."),
            "options": parsed.model_dump(mode="json", exclude_none=True),
        }
    )


def _objective_class(name: str, tables: Mapping[str, Any]) -> type[Objective[Any]]:
    OBJECTIVES.check_installed(name, tables.get(_PLUGINS, {}))
    check_name("objective", name, OBJECTIVES)
    return OBJECTIVES[name]


def settings_tables(
    config: "PretrainConfig | Mapping[str, Any] | str | Path | None",
) -> dict[str, Any]:
    """Return nested tables from settings, tables, the path of a TOML file, or None.

    Raises:
        ConfigError: If the file has settings of another command.
    """
    if isinstance(config, PretrainConfig):
        config = config.to_tables()
    if not isinstance(config, str | Path):
        return _arrange(config or {})
    tables = read_toml(Path(config))
    command = command_of(tables)
    if command not in (None, "pretrain"):
        raise ConfigError(
            f"{config} has settings of {command}; name the config.toml of a run of pretrain.",
            file=config,
        )
    return _arrange(tables)


def command_of(tables: Mapping[str, Any]) -> str | None:
    """Return the command whose settings a file contains, inferred from its tables, or None."""
    commands = {"finetune": "finetune", "probe": "probe", "training": "pretrain"}
    return next((command for table, command in commands.items() if table in tables), None)


def recorded_config(tables: Mapping[str, Any]) -> PretrainConfig:
    """Return the settings that a run was started with, even if its recipe has changed since."""
    return _config_from_tables(_arrange(tables))


def read_config(path: Path) -> PretrainConfig:
    """Return the settings in the ``config.toml`` of a run."""
    return recorded_config(read_toml(path))


def first_difference(
    before: Mapping[str, Any], now: Mapping[str, Any], ignored: Collection[str] = _IGNORED
) -> str | None:
    """Return the first setting that differs and is not ``ignored``, with both values, or None."""
    old, new = flat_settings(before), flat_settings(now)
    for key in sorted(old.keys() | new.keys()):
        if key not in ignored and old.get(key) != new.get(key):
            return f"{key} = {old.get(key)!r}, now {new.get(key)!r}"
    return None


def flat_settings(tables: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return the settings in nested tables by dotted names."""
    flat: dict[str, Any] = {}
    for key, value in tables.items():
        if isinstance(value, Mapping):
            flat |= flat_settings(value, f"{prefix}{key}.")
        else:
            flat[prefix + key] = value
    return flat


def check_fits(init: GraphEncoder, config: PretrainConfig, schema: FeatureSchema) -> None:
    """Check that a run can start from the weights of ``init``.

    Raises:
        ConfigError: If its schema or a setting of its encoder differs.
    """
    if init.schema != schema or init.schema.contradicts(schema):
        raise ConfigError(
            f"the model to start from reads schema '{init.schema.name}', the graphs have "
            f"'{schema.name}' ({init.schema.difference(schema)}); featurize them alike."
        )
    # the setting `sharing` does not change weights
    wanted = config.encoder.resolve_auto(schema.domain).model_dump(exclude={"sharing"})
    wanted, actual = flat_settings(wanted), flat_settings(init.config.model_dump())
    for key, value in wanted.items():
        if actual.get(key) != value:
            raise ConfigError(
                f"`encoder.{key}` is {value!r} but {actual.get(key)!r} in the model to start from; "
                f"set encoder.{key} = {actual.get(key)!r}."
            )


def _arrange(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return nested tables: expand dotted keys, and move top-level settings to ``training``."""
    expanded: dict[str, Any] = {}
    for key, value in values.items():
        head, *rest = key.split(".")
        for part in reversed(rest):
            value = {part: value}
        if isinstance(value, EncoderConfig):
            value = value.model_dump()
        if head == "objective" and isinstance(value, str):
            value = {"name": value}
        expanded = merge(expanded, {head: value})
    arranged: dict[str, Any] = {table: {} for table in _TABLES}
    for key, value in expanded.items():
        if key in (*_TOP, _PLUGINS):
            arranged[key] = value
        elif key not in _TABLES:
            arranged["training"][key] = value
        elif isinstance(value, Mapping):
            arranged[key] = merge(arranged[key], value)
        else:
            raise ConfigError(f"`{key}` must be a table ({key}.NAME = VALUE), found {value!r}.")
    elsewhere = (*_TOP, "objective", "encoder", "options")
    training = [key for key in PretrainConfig.model_fields if key not in elsewhere]
    for key in arranged["training"]:
        if key not in training:
            encoder = (f"encoder.{k}" for k in EncoderConfig.model_fields)
            known = [*_TOP, *_TABLES, *training, *encoder]
            if key in known:
                raise ConfigError(
                    f"`{key}` is no setting of `training`; give it outside that table."
                )
            raise unknown_name("setting", key, known)
    return arranged


def check_default_device() -> None:
    """Raise a ConfigError if torch creates tensors on another device than the CPU by default."""
    if (default := torch.get_default_device().type) != "cpu":
        raise ConfigError(
            f"torch's default device is '{default}', and graphlog moves tensors to a device itself:"
            f" call torch.set_default_device('cpu') and give {setting('device', 'cuda')}."
        )


def choose_device(name: str) -> torch.device:
    """Return the device called ``name``; ``auto`` is CUDA if there is a GPU, else the CPU.

    Each of several processes on a machine uses its own GPU; a CPU is shared by all.

    Raises:
        ConfigError: If the name is not a device, if this machine lacks it or has fewer GPUs than
            processes, if several processes name the same GPU, or if torch's default device is not
            the CPU.
    """
    check_default_device()
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        device = torch.device(name)
    except RuntimeError:
        device = None
    if device is None or device.type not in {"cpu", "cuda"}:
        raise out_of_range("device", "auto, cpu or cuda", repr(name))
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if device.type == "cuda" and (device.index or 0) >= count:
        raise ConfigError(
            f"{setting('device')} is '{name}' but torch sees {count} CUDA devices here; use "
            f"{setting('device', 'auto')} or {setting('device', 'cpu')}.",
            option="device",
        )
    if device.type == "cpu" or processes.size() == 1:
        return device
    number = int(os.environ.get("LOCAL_RANK", "0"))
    if device != torch.device("cuda") or number >= count:
        raise ConfigError(
            f"process {number} of this machine needs a GPU of its own, of the {count} that torch "
            f"sees here; start fewer processes with {setting('device', 'cuda')}, or give "
            f"{setting('device', 'cpu')}.",
            option="device",
        )
    torch.cuda.set_device(number)
    return torch.device("cuda", number)


def has_fast_bf16(device: torch.device) -> bool:
    """Return whether the hardware supports bf16; emulated bf16 is far slower than fp32."""
    if device.type == "cuda":
        return torch.cuda.get_device_capability(device) >= (8, 0)
    if not hasattr(torch.cpu, "get_capabilities"):  # torch before 2.11
        return False
    capabilities = torch.cpu.get_capabilities()
    return any(capabilities.get(flag, False) for flag in ("avx512_bf16", "amx_bf16"))


def choose_precision(
    name: Precision, device: torch.device, warn: Callable[[str], None]
) -> NumberFormat:
    """Return the number format for training; call ``warn`` if bf16 is emulated.

    Raises:
        ConfigError: If the name is unknown.
    """
    check_choice("precision", name, get_args(Precision))
    fast = has_fast_bf16(device)
    if name == "auto":
        return "bf16" if fast else "fp32"
    if name == "bf16" and not fast:
        warn(
            f"bf16 is emulated on this {device.type} and much slower than fp32; "
            "precision=auto would choose fp32"
        )
    return name


def inference_precision(
    name: Precision, device: torch.device, say: Callable[[str], None]
) -> NumberFormat:
    """Return the number format for embedding or prediction; call ``say`` with a note for bf16."""
    check_default_device()
    precision = choose_precision(name, device, say)
    if precision == "bf16":
        say("note: in bf16 results differ from those in fp32, the default, by about 1 %")
    return precision


def autocast(precision: NumberFormat, device: torch.device) -> AbstractContextManager[object]:
    """Return the context of the forward pass in this number format; parameters remain fp32."""
    if precision == "bf16":
        # kept casts of the weights would outlive the step if the caller has entered autocast too
        return torch.autocast(device.type, dtype=torch.bfloat16, cache_enabled=False)
    return torch.autocast(device.type, enabled=False)  # the caller may have enabled it


@dataclass(frozen=True, slots=True)
class Setting:
    """Seed, device and number format of a step."""

    seed: int
    device: torch.device
    precision: NumberFormat

    def staged(self, batch: GraphBatch) -> GraphBatch:
        """Return a batch in memory that is copied to the device without waiting."""
        return batch if self.device.type == "cpu" else batch.pin_memory()


def seed_for(seed: int, *words: str | int) -> int:
    """Return a 63-bit seed that depends on ``seed`` and on every word.

    To resume a run, no state of generators is needed: step 812 draws the same numbers whether or
    not the process was restarted at step 800.

    Example:
        >>> seed_for(0, "views", 3) == seed_for(0, "views", 3) != seed_for(0, "views", 4)
        True
    """
    text = "\x1f".join([str(seed), *map(str, words)])
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big") >> 1


def generator_for(
    seed: int, *words: str | int, device: torch.device | str = "cpu"
) -> torch.Generator:
    """Return a new generator on ``device``, seeded by :func:`seed_for`."""
    return torch.Generator(device=device).manual_seed(seed_for(seed, *words))


@contextmanager
def global_seed(
    seed: int, *words: str | int, device: torch.device | str = "cpu"
) -> Generator[None, None, None]:
    """Seed torch's global generators inside the block, and restore them after it.

    Dropout and the initialization in ``torch.nn`` do not accept a generator. Other threads wait.
    """
    with torch_globals(device):
        # `torch.manual_seed` would record a stack trace for each type of missing device
        derived = seed_for(seed, *words)
        torch.default_generator.manual_seed(derived)
        if torch.device(device).type == "cuda":
            with torch.cuda.device(device):
                torch.cuda.manual_seed(derived)
        yield
