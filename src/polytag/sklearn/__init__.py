"""A scikit-learn estimator over any model: ``from polytag.sklearn import PolytagClassifier``."""

from polytag.sklearn.estimator import PolytagClassifier

__all__ = ["PolytagClassifier"]
