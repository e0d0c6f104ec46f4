"""Verbs that look at what exists and change nothing."""
