"""Extreme label sets: an index of the labels (a balanced tree), and linear separators at its nodes."""
