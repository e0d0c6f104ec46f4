"""Which graphs make up each batch: a function of (seed, epoch), so a run can resume anywhere."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Int


def seeded_permutation(n: int, *words: int) -> Int[np.ndarray, "n"]:
    """Return a permutation of ``range(n)`` that depends on ``words`` alone, not on NumPy's version.

    NumPy guarantees its bit streams for ever but not what its distributions make of them, so the
    raw stream is ranked.

    Args:
        n: Length.
        words: Non-negative integers: seed, epoch, …
    """
    stream = np.random.PCG64(np.random.SeedSequence(words))
    return np.argsort(stream.random_raw(n), kind="stable")


@dataclass(frozen=True, slots=True)
class BatchSampler:
    """Batches of graph indices, each graph once an epoch; holds no state."""

    num_graphs: int
    """Graphs to draw from."""
    batch_size: int
    """Graphs a batch; the last one may be smaller."""
    seed: int = 0
    """Seed of the order."""
    shuffle: bool = True
    """Whether each epoch has its own order."""
    drop_last: bool = False
    """Whether a smaller last batch is left out."""

    def __post_init__(self) -> None:
        """Check the ranges."""
        if self.num_graphs < 0 or self.batch_size < 1 or self.seed < 0:
            raise ValueError(
                "`num_graphs` and `seed` must not be negative and `batch_size` must be at least "
                f"1, found {self}."
            )

    def __len__(self) -> int:
        """Return the number of batches an epoch."""
        whole, rest = divmod(self.num_graphs, self.batch_size)
        return whole + (rest > 0 and not self.drop_last)

    def epoch(self, epoch: int) -> list[Int[np.ndarray, "_"]]:
        """Return the index arrays of epoch ``epoch`` (from 0), in order.

        Example:
            >>> [b.tolist() for b in BatchSampler(5, 2, seed=0, shuffle=False).epoch(0)]
            [[0, 1], [2, 3], [4]]
        """
        order = (
            seeded_permutation(self.num_graphs, self.seed, epoch)
            if self.shuffle
            else np.arange(self.num_graphs)
        )
        return [
            order[start : start + self.batch_size]
            for start in range(0, len(self) * self.batch_size, self.batch_size)
        ]
