"""What a network's training minimises."""

from __future__ import annotations

from dataclasses import dataclass

from polytag.config.settings import param

LABEL_LOSSES = ("bce", "focal", "asymmetric")
SQUARED_HINGE = "squared-hinge"


@dataclass
class LossSettings:
    """Loss."""

    loss: str = param(
        "bce",
        "bce, focal, asymmetric (Ridnik et al.), or for clusters squared-hinge",
        choices=(*LABEL_LOSSES, SQUARED_HINGE),
        first=True,
    )
    focus: float = param(
        2.0,
        "exponent of the focal loss; of the asymmetric loss, for negatives",
        minimum=0,
        when={"loss": ("focal", "asymmetric")},
    )
    positive_weight: float = param(
        0.0,
        "exponent of the weight of positives, negatives / positives; 0 = unweighted",
        minimum=0,
        maximum=1,
        unless={"loss": ("asymmetric",)},
        first=True,
    )
    smoothing: float = param(0.0, "label smoothing: share of a target that is spread evenly", minimum=0, maximum=0.5)
    prior_bias: bool = param(
        True, "whether the output bias starts at the labels' log-odds (sequences: log-frequencies; squared-hinge: 2 p - 1)"
    )
