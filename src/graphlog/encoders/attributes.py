"""Learned vectors of attributes: one matrix holds the tables of all columns."""

import math

import torch
from jaxtyping import Float, Int, Shaped
from torch import Tensor, nn
from torch.nn import functional as F

from graphlog.data.schema import Attribute
from graphlog.errors import DataError


def code_rows(values: Shaped[Tensor, "R F"], columns: tuple[Attribute, ...]) -> Int[Tensor, "R C"]:
    """Return the row of each code in the stacked tables of the categorical columns.

    Raises:
        DataError: If a code is outside its column (looked for on the CPU only: elsewhere it would
            stall the device).
    """
    coded = [i for i, c in enumerate(columns) if c.is_categorical]
    sizes = torch.tensor([columns[i].cardinality for i in coded], dtype=torch.int64)
    codes = (values if len(coded) == len(columns) else values[:, coded]).to(torch.int64)
    if codes.device.type == "cpu" and codes.numel():
        low, high = codes.aminmax(dim=0)
        wrong = (low < 0) | (high >= sizes)
        if wrong.any():
            bad = int(wrong.nonzero()[0])
            column, value = columns[coded[bad]], int(low[bad] if low[bad] < 0 else high[bad])
            raise DataError(
                f"attribute '{column.name}' must be in [0, {column.cardinality}), found {value};"
                " the graphs do not follow this schema."
            )
    return codes + (sizes.cumsum(0) - sizes).to(codes.device)


def table_rows(columns: tuple[Attribute, ...]) -> int:
    """Return the number of indicator columns: codes, continuous columns, and a bias for these."""
    continuous = sum(not c.is_categorical for c in columns)
    return sum(c.cardinality for c in columns) + continuous + (continuous > 0)


def expand_attributes(
    values: Shaped[Tensor, "R F"], columns: tuple[Attribute, ...], dtype: torch.dtype
) -> Float[Tensor, "R K"]:
    """Return the indicator columns of each row.

    These are one-hot codes, standardized continuous columns, and a 1 for the bias of the latter.
    """
    out = torch.zeros(values.shape[0], table_rows(columns), dtype=dtype, device=values.device)
    continuous = [i for i, c in enumerate(columns) if not c.is_categorical]
    if len(continuous) < len(columns):
        out.scatter_(1, code_rows(values, columns), 1.0)
    if continuous:
        out[:, -1 - len(continuous) : -1] = standardized(
            values[:, continuous], tuple(columns[i] for i in continuous)
        ).to(dtype)
        out[:, -1] = 1.0
    return out


def standardized(
    values: Shaped[Tensor, "R F"], columns: tuple[Attribute, ...]
) -> Shaped[Tensor, "R F"]:
    """Return ``(value - shift) / scale`` of continuous columns, as the schema defines."""
    if all(c.shift == 0.0 and c.scale == 1.0 for c in columns):
        return values
    shift, scale = (
        torch.tensor([getattr(c, key) for c in columns], dtype=torch.float64)
        for key in ("shift", "scale")
    )
    return ((values.double() - shift.to(values.device)) / scale.to(values.device)).float()


class AttributeTable(nn.Module):
    """The sum of one learned vector per column.

    A code selects a row of its column's table, a number scales a vector and adds a bias:
    ``table(values)`` is ``expand_attributes(values) @ table.weight``.
    """

    def __init__(self, columns: tuple[Attribute, ...], dim: int) -> None:
        super().__init__()
        self.columns = columns
        self.weight = nn.Parameter(torch.empty(table_rows(columns), dim))
        """A row for each indicator column."""
        self.reset_parameters()

    @torch.no_grad()
    def reset_parameters(self) -> None:
        """Draw tables Xavier-uniform and continuous columns as a linear layer (Hu et al., 2020)."""
        start, dim = 0, self.weight.shape[1]
        for column in self.columns:
            bound = math.sqrt(6 / (column.cardinality + dim))
            self.weight[start : start + column.cardinality].uniform_(-bound, bound)
            start += column.cardinality
        if start < self.weight.shape[0]:
            bound = 1 / math.sqrt(self.weight.shape[0] - start - 1)
            self.weight[start:].uniform_(-bound, bound)

    def forward(self, values: Shaped[Tensor, "R F"]) -> Float[Tensor, "R D"]:
        """Return the vector of each row of attributes."""
        if self.columns and all(c.is_categorical for c in self.columns):
            return F.embedding_bag(code_rows(values, self.columns), self.weight, mode="sum")
        return expand_attributes(values, self.columns, self.weight.dtype) @ self.weight
