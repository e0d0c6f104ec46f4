"""What a step depends on besides its batch: device, number format, and random numbers.

Every draw is a function of the seed and of where it happens; nothing else is kept.
"""

import hashlib
import os
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Literal

import torch

from graphlog import processes
from graphlog.data.batch import GraphBatch
from graphlog.errors import ConfigError, out_of_range, setting

NumberFormat = Literal["fp32", "bf16"]
Precision = Literal["auto", "fp32", "bf16"]


def choose_device(name: str) -> torch.device:
    """Return the device called ``name``; ``auto`` is CUDA where there is a GPU, else the CPU.

    Of several processes on a machine each takes a GPU of its own; a CPU is shared by all.

    Raises:
        ConfigError: If the name is not a device, this machine does not have it or has fewer GPUs
            than processes, or several processes ask for one GPU by number.
    """
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
            f"{setting('device', 'auto')} or device=cpu.",
            option="device",
        )
    if device.type == "cpu" or processes.size() == 1:
        return device
    if device != torch.device("cuda"):
        raise ConfigError(
            f"several processes cannot share '{device}'; with {setting('device', 'cuda')} each "
            "takes its own.",
            option="device",
        )
    number = int(os.environ.get("LOCAL_RANK", "0"))
    if number >= count:
        raise ConfigError(
            f"process {number} of this machine needs a GPU of its own and torch sees {count} here; "
            f"start fewer processes, or give {setting('device', 'cpu')}.",
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
    """Return the format to train in; a warning says where bf16 is emulated."""
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
    return nullcontext()


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
    """Seed torch's global generators inside the block and put them back after it.

    Dropout and the initializers of ``torch.nn`` take no generator of their own.
    """
    device = torch.device(device)
    devices = [device] if device.type == "cuda" else []
    with torch.random.fork_rng(devices=devices):
        torch.manual_seed(seed_for(seed, *words))
        yield
