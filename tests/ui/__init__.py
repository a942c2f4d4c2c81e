"""A log in a browser."""

from typing import Final

UNHURRIED: Final = 3_600_000
"""`head_ms` of a server that lets go of nobody because this machine is busy."""
