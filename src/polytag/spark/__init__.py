"""Spark: ``from polytag.spark import predict``."""

from polytag.spark.frame_prediction import predict

__all__ = ["predict"]
