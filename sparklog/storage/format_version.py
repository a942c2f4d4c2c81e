"""The format version of the ledger's records and of sparklog's own files."""

from typing import Final

from sparklog.errors import UnsupportedVersionError

FORMAT_VERSION: Final = 1


def check_version(version: int, what: str, *, newest: int = FORMAT_VERSION) -> None:
    """Raise UnsupportedVersionError if a newer sparklog wrote `what`."""
    if version > newest:
        raise UnsupportedVersionError(
            f"{what} has format version {version}, this sparklog reads up to "
            f"{newest}: open the log with the sparklog that wrote it, or a newer one"
        )
