"""Corpora for tests and benchmarks, built from Debian and npm packages; not part of the toolkit."""
