"""A plug-in for graphlog: one objective, one backbone, one data set."""
