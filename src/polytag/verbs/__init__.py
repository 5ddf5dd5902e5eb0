"""The verbs as library functions, which the command line calls."""
