"""Base classes of the models."""
