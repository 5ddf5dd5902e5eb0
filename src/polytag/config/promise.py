"""A promise about predicted label sets, as in ``recall=.9`` or ``precision=.9,confidence=.95``."""

from __future__ import annotations

from dataclasses import dataclass

from polytag.errors import ConfigError, brief

GOALS = ("recall", "precision")
_EXAMPLE = "write recall=.9, recall=.9,confidence=.9 or precision=.9"
_CONFIDENCE = 0.9  # of a promise about precision, which has no form without one


@dataclass(frozen=True)
class Promise:
    """The mean recall, or precision, of documents is at least ``level``.

    Without ``confidence`` the promise holds in expectation over new documents and held-out documents alike. With it, the share of
    held-out samples that lead to a decision below the level is at most 1 - confidence.
    """

    goal: str
    level: float
    confidence: float | None = None

    @classmethod
    def parse(cls, text: str) -> Promise:
        """Read ``GOAL=LEVEL`` or ``GOAL=LEVEL,confidence=SHARE``."""
        values: dict[str, float] = {}
        for part in str(text).split(","):
            name, equals, number = (piece.strip() for piece in part.partition("="))
            if not equals or name not in (*GOALS, "confidence") or name in values:
                raise ConfigError(f"{brief(text, 60)} is not a promise; {_EXAMPLE}")
            values[name] = _share(name, number)
        goals = [goal for goal in GOALS if goal in values]
        if len(goals) != 1:
            raise ConfigError(f"{brief(text, 60)} is not a promise; {_EXAMPLE}")
        default = _CONFIDENCE if goals[0] == "precision" else None
        return cls(goals[0], values[goals[0]], values.get("confidence", default))

    def __str__(self) -> str:
        """The text that ``parse`` reads."""
        confidence = "" if self.confidence is None else f",confidence={self.confidence:g}"
        return f"{self.goal}={self.level:g}{confidence}"


def _share(name: str, text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 < value < 1:
        raise ConfigError(f"a promise has {name}={brief(text)}, which must be a number between 0 and 1, both excluded")
    return value
