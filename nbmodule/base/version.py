"""The version of the package: it stands here, and everywhere else it is read from here."""

__version__ = "0.1.0"
