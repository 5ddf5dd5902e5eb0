"""Reading and writing documents; splits."""

from polytag.formats.document import ReadOptions

__all__ = ["ReadOptions"]
