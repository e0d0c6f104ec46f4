"""Features built on the public interface; no file outside this package imports them."""
