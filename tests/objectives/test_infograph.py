"""InfoGraph: the widths of its nets and the prior."""

from encoder_support import batch_for, encoder_for, make, run_once, seeded


def test_widths_of_the_nets() -> None:
    encoder = encoder_for()
    assert make("infograph", encoder).local.shortcut.weight.shape == (12, 24)
    assert make("infograph", encoder, head_width="all-layers").whole.shortcut.weight.shape == (
        24,
        24,
    )


def test_the_prior_is_a_term_of_its_own() -> None:
    encoder = encoder_for().eval()
    plain, matched = make("infograph", encoder), make("infograph", encoder, prior_weight=0.1)
    matched.load_state_dict(plain.state_dict(), strict=False)
    without, with_it = (
        run_once(plain, encoder, batch_for()),
        run_once(matched, encoder, batch_for()),
    )
    assert (
        abs(float((with_it.total - without.total - 0.1 * with_it.terms["prior"]).detach())) < 1e-4
    )
    with_it.total.backward()
    assert all(p.grad is not None for p in matched.prior.parameters())


def test_the_prior_is_drawn_from_the_generator() -> None:
    encoder = encoder_for().eval()
    objective = make("infograph", encoder, prior_weight=1.0)
    values = [
        float(objective.loss(batch_for(), encoder, seeded(k)).total.detach()) for k in (1, 1, 2)
    ]
    assert values[0] == values[1] != values[2]
