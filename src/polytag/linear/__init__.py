"""Sparse linear separators: the solver, the kernels that score with them, and how they choose their strength."""
