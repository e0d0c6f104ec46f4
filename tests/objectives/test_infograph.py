"""InfoGraph: the widths of its nets."""

from encoder_support import encoder_for, make


def test_widths_of_the_nets() -> None:
    encoder = encoder_for()
    assert make("infograph", encoder).local.shortcut.weight.shape == (12, 24)
    assert make("infograph", encoder, head_width="all-layers").whole.shortcut.weight.shape == (
        24,
        24,
    )
