"""The jars in the package, one for each Spark that needs one, built by scripts/jars.py."""

import hashlib
import importlib.resources
import pathlib
from importlib.resources.abc import Traversable
from typing import Final

from sparklog import zipped
from sparklog.errors import InvalidRequestError
from sparklog.jvm.jar_file import VERSION, read
from sparklog.spark_support import jar_version

_FOLDER: Final = "jars"
SUMS: Final = "SHA256SUMS"


def jar_name(spark: str) -> str:
    """Return the file name of the jar for a version of Spark."""
    major, minor = jar_version(spark)
    return f"sparklog-jvm-{major}.{minor}.jar"


def packaged_jar(spark: str, sources: str) -> str | None:
    """Return the path of the package's jar for a version of Spark.

    Args:
        spark: The version of Spark.
        sources: The digest of the Scala sources for that version.

    Returns:
        The path, or None if the package has no such jar: in a checkout, where the sources may also
        have changed since the jar was built.

    Raises:
        InvalidRequestError: The jar is damaged.

    Cost: 2 ms to compute the digest of the jar.
    """
    name = jar_name(spark)
    entry, digest = folder().joinpath(name), digests(folder()).get(name)
    if digest is None or not entry.is_file():
        return None
    path = _path(entry)
    if not is_current(path, sources):
        return None
    if hashlib.sha256(path.read_bytes()).hexdigest() != digest:
        raise InvalidRequestError(
            f"{path} is damaged, or was changed after sparklog was installed: install sparklog "
            "again"
        )
    return str(path)


def is_current(path: pathlib.Path, sources: str) -> bool:
    """Return whether a jar was built from these sources, and not from those of another version.

    True for a damaged jar, which `packaged_jar` refuses.
    """
    versions = read(path)
    return versions is None or (versions.sources, versions.sparklog) == (sources, VERSION)


def folder() -> Traversable:
    """Return the package's folder of jars, which may be missing."""
    return importlib.resources.files(__package__).joinpath(_FOLDER)


def digests(folder: Traversable) -> dict[str, str]:
    """Return {name: SHA-256} of the jars in a folder, as its SHA256SUMS says."""
    sums = folder / SUMS
    if not sums.is_file():
        return {}
    lines = (line.split() for line in sums.read_text().splitlines())
    return {name.lstrip("*"): digest for digest, name in lines}


def _path(entry: Traversable) -> pathlib.Path:
    if isinstance(entry, pathlib.Path):
        return entry
    # The package is imported from a zip.
    archive: str = __spec__.loader.archive  # type: ignore[union-attr]
    inside = f"{__package__.replace('.', '/')}/{_FOLDER}/{entry.name}"
    return pathlib.Path(zipped.unpack(archive, [inside]), inside)
