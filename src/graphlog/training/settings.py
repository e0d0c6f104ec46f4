"""What a run is made of: the settings of pre-training, device, number format and random numbers.

Every draw is a function of the seed and of where it happens; nothing else is kept.
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
_PLUGINS = "plugins"
"""Table of the packages that a run needs besides graphlog."""
_TABLES = ("objective", "encoder", "training")
_INDIFFERENT = ("training.checkpoint_every_s", "training.targets_from")
"""Settings that may change in a run: of the vectors, the digest decides and not the place."""

with warnings.catch_warnings():
    # pydantic reserves `schema` for a deprecated method; here it is the term of the domain
    warnings.filterwarnings("ignore", message='Field name "schema"', category=UserWarning)

    class PretrainConfig(FrozenConfig):
        """Everything that decides the outcome of a pre-training run, besides the graphs."""

        objective: str = "graphlog"
        """Name of the pretext task, a key of ``OBJECTIVES``."""
        recipe: str = "default"
        """Bundle of settings the others started from."""
        schema: str = "molecule"  # pyright: ignore[reportIncompatibleMethodOverride, reportAssignmentType]
        """Name of the feature schema that raw inputs are read with; a store brings its own."""
        embedding: EmbeddingLayer = "jk"
        """What the trained model embeds by default."""
        epochs: int = Field(default=11, ge=1)
        """Passes over the graphs, all phases together."""
        batch_size: int = Field(default=512, ge=2)
        """Graphs a step."""
        learning_rate: float = Field(default=1e-3, gt=0, allow_inf_nan=False)
        """Step size of Adam."""
        schedule: Schedule = "constant"
        """Step size over the run: ``constant`` (paper and script) or ``cosine``, falling to 0."""
        warmup: float = Field(default=0.0, ge=0, lt=1)
        """Share of the run over which the step size rises in a line to ``learning_rate``."""
        average: float = Field(default=0.0, ge=0, lt=1)
        """Decay of the moving average of the weights that the run ends with; 0: none is taken."""
        fresh_moments: bool = True
        """Whether Adam forgets its moments where a phase begins (script)."""
        seed: int = Field(default=0, ge=0, lt=SEED_LIMIT)
        """Decides initial weights, order of the graphs, masks and samples."""
        precision: Precision = "auto"
        """``auto`` is bf16 where the hardware computes in it, else fp32; the run records which."""
        device: str = "auto"
        """``auto``, ``cpu``, ``cuda`` or ``cuda:1``."""
        checkpoint_every_s: float = Field(default=60.0, ge=0)
        """Seconds between checkpoints within an epoch."""
        log_every: int = Field(default=10, ge=1)
        """Steps that one row of ``metrics.jsonl`` averages."""
        watch_every: int = Field(default=50, ge=0)
        """Steps between two looks of the collapse monitor; 0 turns it off."""
        targets_from: str | None = None
        """An ``.npz`` of vectors, such as ``embed`` writes, to predict in place of the domain's
        descriptors; a row of it for each row of the input."""
        targets_digest: str | None = None
        """SHA-256 of the vectors as they were standardized; the run records it."""
        encoder: EncoderConfig = EncoderConfig.parse({})
        """The network to be trained."""
        options: dict[str, Any] = Field(default_factory=dict)
        """Switches of the objective, but those that are None."""

        def to_tables(self) -> dict[str, Any]:
            """Return the tables of ``config.toml``; :func:`resolve_config` reads them back."""
            values = self.model_dump(exclude_none=True)
            tables = {key: values.pop(key) for key in _TOP}
            tables["objective"] = {"name": values.pop("objective"), **values.pop("options")}
            tables["encoder"] = values.pop("encoder")
            needed = OBJECTIVES.package(self.objective) | LAYERS.package(self.encoder.backbone)
            return {**tables, "training": values, **({_PLUGINS: needed} if needed else {})}

        def to_toml(self) -> str:
            """Return ``config.toml``."""
            return tomli_w.dumps(self.to_tables())


def resolve_config(
    objective: str | None = None,
    recipe: str | None = None,
    overrides: Mapping[str, Any] | None = None,
    domain: str = "molecule",
) -> PretrainConfig:
    """Lay ``overrides`` over the recipe's bundle and validate the whole.

    Objective and recipe are those of the overrides where they are None, else ``graphlog`` and
    ``default``, which stands for the bundle that is usual for ``domain``. Overrides are nested
    tables as in ``config.toml``, or have dotted keys (``"encoder.dim"``); settings of ``training``
    may also stand at the top.

    Raises:
        ConfigError: On an unknown objective, recipe or key, or a bad value.

    Example:
        >>> resolve_config("graphlog", "default", {"encoder.dim": 64, "epochs": 2}).encoder.dim
        64
    """
    tables = _arrange(overrides or {})
    chosen = objective or tables["objective"].get("name", "graphlog")
    kind = _objective(chosen, tables)
    bundle = recipe or tables.get("recipe", "default")
    if bundle == "default":
        bundle = kind.recipe_for(domain)
    check_name(f"recipe of {chosen}", bundle, kind.RECIPES)
    head = {"objective": {"name": chosen}, "recipe": bundle}
    return _of_tables(merge(merge(_arrange(kind.RECIPES[bundle]), tables), head))


def _of_tables(tables: dict[str, Any]) -> PretrainConfig:
    """Return the settings in nested tables; what they leave out has the setting's own default."""
    options = dict(tables["objective"])
    name = options.pop("name", "graphlog")
    kind = _objective(name, tables)
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


def _objective(name: str, tables: Mapping[str, Any]) -> type[Objective[Any]]:
    OBJECTIVES.check_installed(name, tables.get(_PLUGINS, {}))
    check_name("objective", name, OBJECTIVES)
    return OBJECTIVES[name]


def settings_tables(
    config: "PretrainConfig | Mapping[str, Any] | str | Path | None",
) -> dict[str, Any]:
    """Return nested tables of an object, tables, the path of a TOML file, or nothing.

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
    """Return the command whose settings a file holds, as far as its tables tell."""
    tells = {"finetune": "finetune", "probe": "probe", "training": "pretrain"}
    return next((command for table, command in tells.items() if table in tables), None)


def recorded_config(tables: Mapping[str, Any]) -> PretrainConfig:
    """Return the settings that a run was started with, whatever its recipe says by now."""
    return _of_tables(_arrange(tables))


def read_config(path: Path) -> PretrainConfig:
    """Return the settings in the ``config.toml`` of a run."""
    return recorded_config(read_toml(path))


def first_difference(
    before: Mapping[str, Any], now: Mapping[str, Any], ignored: Collection[str] = _INDIFFERENT
) -> str | None:
    """Return the first setting that differs and decides the outcome, with both values."""
    old, new = flat_settings(before), flat_settings(now)
    for key in sorted(old.keys() | new.keys()):
        if key not in ignored and old.get(key) != new.get(key):
            return f"{key} = {old.get(key)!r}, now {new.get(key)!r}"
    return None


def flat_settings(tables: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return the settings of nested tables by dotted name."""
    flat: dict[str, Any] = {}
    for key, value in tables.items():
        if isinstance(value, Mapping):
            flat |= flat_settings(value, f"{prefix}{key}.")
        else:
            flat[prefix + key] = value
    return flat


def check_fits(init: GraphEncoder, config: PretrainConfig, schema: FeatureSchema) -> None:
    """Check that a run may start from the weights of ``init``.

    Raises:
        ConfigError: If its schema or a setting of the encoder differs.
    """
    if init.schema != schema or init.schema.contradicts(schema):
        raise ConfigError(
            f"the model to start from reads schema '{init.schema.name}', the graphs have "
            f"'{schema.name}' ({init.schema.difference(schema)}); featurize them alike."
        )
    # equal environments may be computed once or not: no weight depends on it
    wanted = config.encoder.resolve_auto(schema.domain).model_dump(exclude={"sharing"})
    wanted, actual = flat_settings(wanted), flat_settings(init.config.model_dump())
    for key, value in wanted.items():
        if actual.get(key) != value:
            raise ConfigError(
                f"`encoder.{key}` is {value!r} but {actual.get(key)!r} in the model to start from; "
                f"set encoder.{key} = {actual.get(key)!r}."
            )


def _arrange(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return nested tables: dotted keys are expanded, loose training settings moved in."""
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
    for key in arranged["training"]:
        if key not in _training_keys():
            encoder = (f"encoder.{k}" for k in EncoderConfig.model_fields)
            known = [*_TOP, *_TABLES, *_training_keys(), *encoder]
            if key in known:
                raise ConfigError(
                    f"`{key}` is no setting of `training`; give it outside that table."
                )
            raise unknown_name("setting", key, known)
    return arranged


def _training_keys() -> list[str]:
    elsewhere = {*_TOP, "objective", "encoder", "options"}
    return [key for key in PretrainConfig.model_fields if key not in elsewhere]


def choose_device(name: str) -> torch.device:
    """Return the device called ``name``; ``auto`` is CUDA where there is a GPU, else the CPU.

    Of several processes on a machine each takes a GPU of its own; a CPU is shared by all.

    Raises:
        ConfigError: If the name is not a device, this machine does not have it or has fewer GPUs
            than processes, or several processes ask for one GPU by number; also if torch's default
            device is not the CPU.
    """
    if (default := torch.get_default_device().type) != "cpu":
        raise ConfigError(
            f"torch's default device is '{default}', and graphlog moves tensors to a device itself:"
            f" call torch.set_default_device('cpu') and give {setting('device', 'cuda')}."
        )
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
    """Return whether bf16 products run in hardware; emulated ones are far slower than fp32."""
    if device.type == "cuda":
        return torch.cuda.get_device_capability(device) >= (8, 0)
    if not hasattr(torch.cpu, "get_capabilities"):  # torch before 2.11 cannot say
        return False
    capabilities = torch.cpu.get_capabilities()
    return any(capabilities.get(flag, False) for flag in ("avx512_bf16", "amx_bf16"))


def choose_precision(
    name: Precision, device: torch.device, warn: Callable[[str], None]
) -> NumberFormat:
    """Return the format to train in; a warning says where bf16 is emulated.

    Raises:
        ConfigError: If there is none of that name.
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
    """Return the format to embed or predict in; bf16, never the default, comes with a note."""
    precision = choose_precision(name, device, say)
    if precision == "bf16":
        say("note: in bf16 results differ from those in fp32, the default, by about 1 %")
    return precision


def autocast(precision: NumberFormat, device: torch.device) -> AbstractContextManager[object]:
    """Return the context under which the forward pass runs; parameters stay fp32."""
    if precision == "bf16":
        return torch.autocast(device.type, dtype=torch.bfloat16, cache_enabled=True)
    return torch.autocast(device.type, enabled=False)  # the caller may have it on


@dataclass(frozen=True, slots=True)
class Setting:
    """What a step needs to know besides the batch."""

    seed: int
    device: torch.device
    precision: NumberFormat

    def staged(self, batch: GraphBatch) -> GraphBatch:
        """Return a batch from where the device takes it without making the CPU wait."""
        return batch if self.device.type == "cpu" else batch.pin_memory()


def seed_for(seed: int, *words: str | int) -> int:
    """Return a 63-bit seed that depends on ``seed`` and on every word.

    Nothing has to be saved to continue a run: step 812 draws the same numbers whether or not
    the process was restarted at step 800.

    Example:
        >>> seed_for(0, "views", 3) == seed_for(0, "views", 3) != seed_for(0, "views", 4)
        True
    """
    text = "\x1f".join([str(seed), *map(str, words)])
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big") >> 1


def generator_for(
    seed: int, *words: str | int, device: torch.device | str = "cpu"
) -> torch.Generator:
    """Return a fresh generator on ``device``, seeded by :func:`seed_for`."""
    generator = torch.Generator(device=device)
    generator.manual_seed(seed_for(seed, *words))
    return generator


@contextmanager
def global_seed(
    seed: int, *words: str | int, device: torch.device | str = "cpu"
) -> Generator[None, None, None]:
    """Seed torch's global generators inside the block, for one thread, and put them back after it.

    Dropout and the initializers of ``torch.nn`` take no generator of their own.
    """
    with torch_globals(device):
        # not `torch.manual_seed`, which notes a stack trace for each kind of device that is absent
        number = seed_for(seed, *words)
        torch.default_generator.manual_seed(number)
        if torch.device(device).type == "cuda":
            with torch.cuda.device(device):
                torch.cuda.manual_seed(number)
        yield
