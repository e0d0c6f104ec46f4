"""The products of a layer against the plain ones, in every format they are computed in."""

import pytest
import torch
from torch import Tensor, nn

from graphlog.ops.dense import add_product, linear, normalize, perceptron, shared_moments

# worst rounding of a sum of 600 products, relative to the largest of the results
TOLERANCE = {torch.float64: 1e-13, torch.float32: 1e-5}


def gradients(out: Tensor, x: Tensor, layers: nn.Sequential) -> list[Tensor]:
    weight = torch.randn(out.shape, generator=torch.Generator().manual_seed(1), dtype=out.dtype)
    return [out, *torch.autograd.grad((out * weight).sum(), [x, *layers.parameters()])]


@pytest.fixture(params=["perceptron", "linear", "linear without bias"])
def kind(request: pytest.FixtureRequest) -> str:
    return request.param


def layers_of(dtype: torch.dtype, kind: str) -> nn.Sequential:
    if kind != "perceptron":
        return nn.Sequential(nn.Linear(24, 12, bias=kind == "linear")).to(dtype)
    return nn.Sequential(nn.Linear(24, 48), nn.ReLU(), nn.Linear(48, 12)).to(dtype)


def computed(x: Tensor, layers: nn.Sequential) -> Tensor:
    first = layers[0]
    assert isinstance(first, nn.Linear)
    return linear(x, first) if len(layers) == 1 else perceptron(x, first, layers[2])


def compare(found: list[Tensor], expected: list[Tensor], tolerance: float) -> None:
    for mine, plain in zip(found, expected, strict=True):
        assert mine.dtype == plain.dtype
        assert mine.shape == plain.shape
        scale = plain.detach().double().abs().max() if plain.numel() else 0.0
        torch.testing.assert_close(mine, plain, rtol=0, atol=tolerance * float(scale))


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("rows", [0, 1, 2, 63, 64, 65, 700])
def test_equals_the_layers_one_by_one(dtype: torch.dtype, rows: int, kind: str):
    layers, x = layers_of(dtype, kind), torch.randn(rows, 24, dtype=dtype, requires_grad=True)
    found = gradients(computed(x, layers), x, layers)
    compare(found, gradients(layers(x), x, layers), TOLERANCE[dtype])
    changed = gradients(computed(x, layers).relu_(), x, layers)  # in place
    compare(changed, gradients(layers(x).relu(), x, layers), TOLERANCE[dtype])


@pytest.mark.parametrize("rows", [0, 1, 65, 700])
def test_follows_autocast(rows: int, kind: str):
    layers, x = layers_of(torch.float32, kind), torch.randn(rows, 24, requires_grad=True)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found, expected = computed(x, layers), layers(x)
    assert found.dtype == torch.bfloat16
    # two roundings to eight bits, which the order of a sum may turn either way
    compare(gradients(found, x, layers), gradients(expected, x, layers), 2.0**-6)


def test_slice_of_a_larger_matrix(kind: str):
    layers, wide = layers_of(torch.float32, kind), torch.randn(70, 40, requires_grad=True)
    x = wide[3:68, 5:29]
    found = gradients(computed(x, layers), wide, layers)
    compare(found, gradients(layers(x), wide, layers), TOLERANCE[torch.float32])


def test_frozen_input_and_gradient_of_another_layout(kind: str):
    layers, x = layers_of(torch.float32, kind), torch.randn(65, 24)
    out, plain = computed(x, layers), layers(x)
    columns = torch.randn(12, 65)
    found, expected = (
        torch.autograd.grad((y.t() * columns).sum(), list(layers.parameters()))
        for y in (out, plain)
    )
    compare(list(found), list(expected), TOLERANCE[torch.float32])


def test_the_gradient_given_is_left_as_it_was(kind: str):
    layers, x = layers_of(torch.float32, kind), torch.randn(64, 24, requires_grad=True)
    given = torch.randn(64, 12)
    kept = given.clone()
    computed(x, layers).backward(given)
    assert torch.equal(given, kept)


@pytest.mark.parametrize("dtype", [*TOLERANCE, torch.bfloat16])
@pytest.mark.parametrize("rows", [0, 1, 64, 65, 700])
def test_added_product_equals_the_plain_one(dtype: torch.dtype, rows: int):
    counts = torch.randint(0, 3, (rows, 5), dtype=torch.float32).requires_grad_()
    table = torch.randn(5, 12, requires_grad=True)
    total = torch.randn(rows, 12, dtype=dtype, requires_grad=True)
    found, expected = (
        [out, *torch.autograd.grad((out * torch.arange(12)).sum(), [total, counts, table])]
        for out in (
            add_product(total.clone(), counts, table),
            total + (counts.to(dtype) @ table.to(dtype)),
        )
    )
    compare(found, expected, {**TOLERANCE, torch.bfloat16: 2.0**-6}[dtype])


@pytest.mark.parametrize("counts", [None, torch.tensor([1.0, 3, 1, 2, 1], dtype=torch.float64)])
def test_derivatives_of_batch_norm(counts: Tensor | None):
    def norm(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        return normalize(x, shared_moments(x, counts), weight, bias, 1e-5, counts)

    shapes = (5, 3), (3,), (3,)
    inputs = [torch.randn(s, dtype=torch.float64, requires_grad=True) for s in shapes]
    assert torch.autograd.gradcheck(norm, inputs)


def test_weights_in_place_of_parameters(kind: str):
    layers, x = layers_of(torch.float64, kind), torch.randn(5, 24, dtype=torch.float64)
    expected = layers(x)
    for layer in layers:
        if isinstance(layer, nn.Linear):
            torch.nn.utils.parametrizations.weight_norm(layer)
    compare([computed(x, layers)], [expected], TOLERANCE[torch.float64])


def test_gradients_that_would_be_differentiated_in_part_are_refused(kind: str):
    layers, x = layers_of(torch.float64, kind), torch.randn(5, 24, dtype=torch.float64)
    out = computed(x.requires_grad_(), layers)
    with pytest.raises(RuntimeError, match="cannot be differentiated"):
        torch.autograd.grad(out.sum(), x, create_graph=True)
