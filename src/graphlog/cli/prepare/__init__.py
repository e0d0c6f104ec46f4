"""Verbs that bring data and foreign models into shape."""
