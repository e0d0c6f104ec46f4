"""InfoGraph: the widths of its nets and the prior."""

from encoder_support import batch_for, encoder_for, make, run_once


def test_widths_of_the_nets() -> None:
    encoder = encoder_for()
    assert make("infograph", encoder).local.shortcut.weight.shape == (12, 24)
    assert make("infograph", encoder, head_width="all-layers").whole.shortcut.weight.shape == (
        24,
        24,
    )


def test_the_prior_learns() -> None:
    encoder = encoder_for()
    objective = make("infograph", encoder, prior_weight=0.1)
    run_once(objective, encoder, batch_for()).total.backward()
    assert all(p.grad is not None and p.grad.any() for p in objective.prior.parameters())
