"""Audit of a corpus: labels that are probably wrong, copies that disagree, labels that mean the same or cannot be learned."""
