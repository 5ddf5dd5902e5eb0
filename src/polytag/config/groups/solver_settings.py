"""How linear separators are trained, and which documents choices are made on."""

from __future__ import annotations

from dataclasses import dataclass

from polytag.config.settings import param


@dataclass
class SolverSettings:
    """Linear separators."""

    c: list[float] = param(
        [0.125, 0.25, 0.5, 1.0, 2.0],
        "inverse regularisation strength; several are compared on held-out documents",
        minimum=1e-6,
        first=True,
    )
    balance: float = param(
        0.3, "exponent of the weight of positives; 0 = unweighted, 1 = balanced", minimum=0, maximum=1, first=True
    )
    tolerance: float = param(0.3, "stopping tolerance of the solver: largest violation", minimum=1e-6)
    prune: float = param(0.01, "weights with a smaller absolute value are set to 0", minimum=0)


@dataclass
class HoldOutSettings:
    """Held-out documents."""

    folds: int = param(3, "number of folds; mixed: 0 = one training of each part, on all documents", minimum=0, first=True)
    holdout: float = param(0.1, "share of documents held out when there is no validation file", minimum=0.001, maximum=0.5)
    refit: bool = param(True, "whether the linear part is trained again on all documents once the decision is fitted")
