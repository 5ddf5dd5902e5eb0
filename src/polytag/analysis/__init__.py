"""Analyses of corpora, truth and predictions, as plain functions."""
