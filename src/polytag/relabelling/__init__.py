"""Edits of label sets, and what they do to scores."""
