"""Correlated and corrupted views of a batch of graphs; none of them touches a parameter."""

from graphlog.views.masking import MaskedView, mask_attributes

__all__ = ["MaskedView", "mask_attributes"]
