"""The choice of a model for a corpus and a limit on the time."""
