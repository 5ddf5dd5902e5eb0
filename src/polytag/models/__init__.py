"""One file per model; ``model.py`` has the base class."""
