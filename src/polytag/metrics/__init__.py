"""Metrics of label sets and of rankings; ``evaluate`` computes all that apply."""

from polytag.metrics.of_rankings import calibration_error, ranking_metrics
from polytag.metrics.of_sets import evaluate, set_metrics

__all__ = ["calibration_error", "evaluate", "ranking_metrics", "set_metrics"]
