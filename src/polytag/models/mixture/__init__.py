"""The members of an ensemble: training, scores and weights."""
