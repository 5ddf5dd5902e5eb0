"""Sparse linear separators: the solver, the scoring kernels and the class weights."""
