"""The errors a user can cause. Each message says what was wrong, where, and what to do."""


class PolytagError(Exception):
    """Base of every error that is not a bug; the command line prints it in one line and exits with 2."""


class DataError(PolytagError):
    """A document, a label or a file cannot be used as it is."""


class ConfigError(PolytagError):
    """A setting, an option or a recipe does not make sense."""


class NotFittedError(PolytagError):
    """Something that learns was asked for an answer before it was trained."""


class ArtefactError(PolytagError):
    """A saved model cannot be trusted or read."""
