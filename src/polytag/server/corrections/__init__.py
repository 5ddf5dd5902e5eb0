"""Corrections by people: stored, undone, exported as a corpus, backed up and restored."""
