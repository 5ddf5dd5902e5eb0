"""One file per model; ``model.py`` holds the base and the table of names."""
