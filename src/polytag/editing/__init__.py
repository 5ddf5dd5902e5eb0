"""Edits of the labels of a trained classifier."""
