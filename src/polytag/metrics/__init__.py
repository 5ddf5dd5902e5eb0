"""Metrics of label sets, of rankings and of two systems; ``evaluate`` computes all of one system that apply."""

from polytag.metrics.bootstrap import paired_bootstrap
from polytag.metrics.of_rankings import calibration_error, ranking_metrics
from polytag.metrics.of_sets import evaluate, set_metrics

__all__ = ["calibration_error", "evaluate", "paired_bootstrap", "ranking_metrics", "set_metrics"]
