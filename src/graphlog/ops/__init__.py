"""Pure functions of tensors: no parameters, no models, no files."""
