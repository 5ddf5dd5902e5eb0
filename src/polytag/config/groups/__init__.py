"""Groups of settings: each a small dataclass that several models share."""
