"""Pre-train GraphLoG on two million molecules in five minutes (docs/two-losses/full-size.md).

    graphlog featurize zinc2m -o STORE --schema molecule
    python benchmarks/gpu/pretrain.py STORE OUT --runs released graphlog --seconds 580

A run is the same as ``graphlog pretrain STORE --recipe NAME --set embedding=last``, except for the
order of its random numbers. ``graphlog-flat`` has no prototypes; ``released-1`` has the seed 1.
Weights and logs are written to ``OUT`` during the run, and also when ``--seconds`` are over. Five
minutes is the time of an H100.
"""

import json
import time
from argparse import ArgumentParser, RawDescriptionHelpFormatter
from collections.abc import Callable, Container
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import torch
from padded import (
    Batch,
    Collection,
    Replayed,
    collection,
    cut,
    encode,
    fuse,
    means,
    project,
    recordable,
)
from safetensors.torch import save_file
from torch import Tensor

from graphlog.data.store import open_store
from graphlog.objectives.losses import graph_loss
from graphlog.ops.contrastive import log_softmax_share
from graphlog.training.pretrain import Pretraining
from graphlog.training.settings import resolve_config, seed_for
from graphlog.training.trainer import Cursor
from graphlog.training.watch import effective_rank
from graphlog.views.augment import num_masked

ROW_EVERY, RANK_EVERY = 50, 500
_TINY = 1e-12


def masked_places(batch: Batch, rate: float) -> Tensor:
    """Return a random mask of nodes: ``int(rate * n + 1)`` of the ``n`` nodes of each graph."""
    keys = torch.rand(batch.real.shape, device=batch.real.device, dtype=torch.float64)
    rank = torch.where(batch.real, keys, 2.0).argsort(1).argsort(1)
    return rank < num_masked(batch.sizes, rate)[:, None]


def losses(
    job: Pretraining, c: Collection, batch: Batch, masked: Tensor, dtype: torch.dtype
) -> tuple[dict[str, Tensor], Tensor]:
    """Return the total loss, its terms and the logged values, by name; and the graph embeddings."""
    objective, o = job.objective, job.objective.config
    view = torch.where(masked, len(c.node_rows) - 2, batch.codes)
    h = encode(job.encoder, c, batch, torch.stack([batch.codes, view]), dtype, learns=True)
    emb = means(h, batch)
    graphs, nodes = (project(objective.head, x, dtype) for x in (emb, h))
    pair = graph_loss(*graphs, form=o.local_form, temperature=o.temperature, eps=o.cosine_eps)
    length = nodes.norm(dim=3)
    product = length[1][:, :, None] * length[0][:, None, :] + o.cosine_eps
    cosine = torch.bmm(nodes[1], nodes[0].mT) * (product > _TINY) / product.clamp_min(_TINY)
    candidates = batch.real[:, None, :].expand_as(cosine)
    if o.skip_symmetric:
        itself = torch.eye(cosine.shape[1], dtype=torch.bool, device=cosine.device)
        is_other_kind = batch.kinds[:, :, None] != batch.kinds[:, None, :]
        candidates = candidates & (is_other_kind | itself)
        candidates = candidates | ~batch.real[:, :, None]  # avoids empty sums at unused places
    positives = masked[:, None, :].expand_as(cosine) if o.subgraph_positive == "masked" else None
    share = log_softmax_share(cosine / o.temperature, candidates, positives, o.cosine_eps)
    anchors = masked if o.subgraph_anchors == "masked" else batch.real
    terms = {"graph": pair.loss}
    terms["subgraph"] = -torch.where(anchors, share, 0.0).sum() / anchors.sum()
    watched = {"cos_graph_pos": pair.positive, "cos_graph_neg": pair.negative}
    weights = objective._weights()
    if objective.forest is not None:
        terms["global"], more = objective._global_term(graphs[0], objective.forest, None)
        watched |= more
    total = torch.stack([weights[name] * term for name, term in terms.items()]).sum()
    return {"loss": total, **{f"loss_{k}": v for k, v in terms.items()}, **watched}, emb[0].detach()


class Run:
    """The pre-training of one recipe on one collection."""

    def __init__(self, job: Pretraining, c: Collection, name: str, out: Path, ends: float) -> None:
        """Prepare a run that writes to ``out`` and stops at the time ``ends``."""
        self.job, self.c, self.name, self.out, self.ends = job, c, name, out, ends
        self.device, self.size = job.setting.device, job.config.batch_size
        self.dtype = torch.bfloat16 if job.setting.precision == "bf16" else torch.float32
        self.step, self.names, self.rows = 0, [""], list[dict[str, Any]]()
        self.sums = self.emb = torch.zeros(0, device=self.device)
        if job.objective.config.initialization == "competitive":  # uses all graphs, without masks
            job._embed = self.embed_all

    @torch.no_grad()
    def embed_all(self, limit: int | None, calibrated: bool) -> Tensor:
        """Return the embeddings of the whole collection, in evaluation mode."""
        assert (limit, calibrated) == (None, False), "the arguments of the released recipe"
        parts: list[Tensor] = []
        for index in torch.arange(len(self.job.store), device=self.device).split(8192):
            batch = cut(self.c, index, self.dtype)
            h = encode(self.job.encoder, self.c, batch, batch.codes[None], self.dtype, learns=False)
            parts.append(means(h, batch)[0])
        return torch.cat(parts)

    def one(self, index: Tensor) -> None:
        """Take one step, without operations that wait for the GPU."""
        self.optimizer.zero_grad()
        batch = cut(self.c, index, self.dtype)
        masked = masked_places(batch, self.job.objective.config.mask_rate)
        named, emb = losses(self.job, self.c, batch, masked, self.dtype)
        named["loss"].backward()
        self.optimizer.step(self.job.config.learning_rate)
        values = torch.stack([value.detach().double() for value in named.values()])
        if self.names != list(named):
            self.names, self.sums = list(named), torch.zeros_like(values)
            self.emb = emb.new_zeros(self.size, emb.shape[1])
        self.sums += values
        if len(index) == self.size:
            self.emb.copy_(emb)

    def begin(self, number: int) -> Callable[[Tensor], None]:
        """Prepare a phase; return the function that takes its steps."""
        self.job.begin_phase(number)
        self.optimizer = recordable(self.job.optimizer(Cursor()), self.device)
        index = torch.zeros(self.size, dtype=torch.int64, device=self.device)
        return Replayed(self.one, index) if self.device.type == "cuda" else self.one

    def train(self, keep: Container[int]) -> None:
        """Train to the end or until the time is over; save weights after the epochs ``keep``."""
        job, last = self.job, None
        numbers = chain.from_iterable([k] * p.epochs for k, p in enumerate(job.phases))
        take, phase = self.one, -1
        for epoch, number in enumerate(numbers):
            if number != phase:
                take, phase = self.begin(number), number
            batches = job.batches(epoch)
            order = torch.from_numpy(np.concatenate(batches)).to(self.device)
            began, since = time.monotonic(), 0
            for part in (parts := order.split([len(b) for b in batches])):
                (take if len(part) == self.size else self.one)(part)
                self.step, since = self.step + 1, since + len(part)
                steps = -(-since // self.size)
                if self.step % RANK_EVERY == RANK_EVERY - 1:
                    last = self.emb.clone()
                if self.step % ROW_EVERY and part is not parts[-1]:
                    continue
                values = (self.sums / steps).tolist()
                self.sums.zero_()
                row = {"run": self.name, "step": self.step, "epoch": epoch}
                row |= {
                    "phase": job.phases[number].name,
                    **dict(zip(self.names, values, strict=True)),
                }
                if self.step % RANK_EVERY == 0 and last is not None:
                    row["rank"] = effective_rank(torch.cat([last, self.emb]))
                row["graphs_per_s"] = round(since / (time.monotonic() - began), 1)
                began, since = time.monotonic(), 0
                self.rows.append(row)
                if self.step % 2000 == 0:
                    print({k: v for k, v in row.items() if "_" not in k or "loss" in k}, flush=True)
                if not np.isfinite(values[0]):
                    raise SystemExit(f"{self.name}: the loss is {values[0]} by step {self.step}")
                if time.monotonic() > self.ends:
                    return self.save(f"step-{self.step}")
            if epoch + 1 in keep or epoch + 1 == job.config.epochs:
                self.save(f"epoch-{epoch + 1}")
        return None

    def save(self, when: str) -> None:
        """Write the weights and the log."""
        tensors = {k: v.detach().cpu().contiguous() for k, v in self.job._weights().items()}
        notes = {"step": str(self.step), "settings": json.dumps(self.job.config.to_tables())}
        save_file(tensors, self.out / f"{self.name}-{when}.safetensors", notes)
        text = "".join(json.dumps(row) + "\n" for row in self.rows)
        (self.out / f"{self.name}.jsonl").write_text(text)
        print("kept", self.name, when, flush=True)


def main() -> None:
    parser = ArgumentParser(description=__doc__, formatter_class=RawDescriptionHelpFormatter)
    parser.add_argument("store")
    parser.add_argument("out", type=Path)
    parser.add_argument("--runs", nargs="+", default=["released"], metavar="RECIPE[-flat][-SEED]")
    parser.add_argument("--keep", nargs="*", type=int, default=[1, 3, 6], help="epochs")
    parser.add_argument("--seconds", type=float, default=float("inf"))
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--epochs", type=int, default=11)
    options = parser.parse_args()
    ends, store = time.monotonic() + options.seconds, open_store(options.store)
    options.out.mkdir(exist_ok=True)
    for name in options.runs:
        recipe, *more = name.split("-")
        if recipe not in ("released", "graphlog"):
            parser.error(f"{recipe}: the losses here are those of released and graphlog")
        seed = int(more[-1]) if more and more[-1].isdecimal() else 0
        settings = {"device": options.device, "embedding": "last", "schema": store.schema.name}
        settings |= {"epochs": options.epochs, "seed": seed}
        if "flat" in more:
            settings["objective.global_weight"] = 0.0
        job = Pretraining(store, resolve_config("graphlog", recipe, settings))
        o, device = job.objective.config, job.setting.device
        rounds = len(job.encoder.layers) if o.skip_symmetric else 0
        c = collection(store, store.schema.mask_row(o.masked_columns), rounds, device)
        if device.type == "cuda":
            fuse(job.config.batch_size * c.codes.shape[1])
        torch.manual_seed(seed_for(seed, "full size"))
        Run(job, c, name, options.out, ends).train(options.keep)
        if time.monotonic() > ends:
            break


if __name__ == "__main__":
    main()
