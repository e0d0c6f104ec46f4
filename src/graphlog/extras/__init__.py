"""Features on top of the rest of the package; no other module imports them."""
