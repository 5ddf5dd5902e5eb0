"""Objectives that need no labels, for continued pre-training of an encoder."""
