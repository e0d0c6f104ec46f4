"""Verbs that train an encoder and put it to use."""
