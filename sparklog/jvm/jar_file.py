"""A jar of sparklog's as a file: written the same for the same classes, and what it says it is.

The manifest has Spark's version as the specification's, sparklog's as the implementation's, which
sparklog.Version (Scala) reads in the JVM, and that of the plans.
"""

import contextlib
import pathlib
import sys
import zipfile
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from sparklog.jvm.plans import PLAN_VERSION

VERSION: Final[str] = sys.modules[__name__.partition(".")[0]].__version__  # the package's

_MANIFEST: Final = "META-INF/MANIFEST.MF"
_PLANS: Final = "Sparklog-Plan-Version"
_SPARK, _OWN = "Specification-Version", "Implementation-Version"
_EARLIEST: Final = (1980, 1, 1, 0, 0, 0)  # that a zip file can tell
REMEDY: Final = (
    "make one anew, with this sparklog and that Spark: sparklog spark-conf --jar FILE; or leave it "
    "out, and one is compiled"
)


@dataclass(frozen=True, slots=True)
class JarVersions:
    """What a jar was made by and for; `plans` is 0 if it doesn't say."""

    spark: str
    sparklog: str = VERSION
    plans: int = PLAN_VERSION

    def mismatch(self, spark: str | None) -> str | None:
        """Return why this package can't use it with that Spark; None if it can.

        Another patch version of Spark will do, and another sparklog that has the same plans.
        spark: None where it isn't known.
        """
        if self.plans != PLAN_VERSION:
            return (
                f"it is of sparklog {self.sparklog}, with plans of version {self.plans}; this is "
                f"sparklog {VERSION}, with plans of version {PLAN_VERSION}"
            )
        if spark is not None and minor(self.spark) != minor(spark):
            return f"it is made for Spark {self.spark}, this is {spark}"
        return None

    def manifest(self) -> bytes:
        """Return META-INF/MANIFEST.MF."""
        values = {
            "Manifest-Version": "1.0", "Specification-Title": "Apache Spark", _SPARK: self.spark,
            "Implementation-Title": "sparklog", _OWN: self.sparklog, _PLANS: str(self.plans),
        }  # fmt: skip
        return "".join(f"{key}: {value}\r\n" for key, value in values.items()).encode() + b"\r\n"


def minor(version: str) -> str:
    """Return the version without the patch: 4.3 of 4.3.0."""
    return ".".join(version.split(".")[:2])


def write(path: pathlib.Path, classes: pathlib.Path, versions: JarVersions) -> None:
    """Make a jar of the files below `classes`: the same bytes for the same files, wherever."""
    names = sorted(p.relative_to(classes).as_posix() for p in classes.rglob("*") if p.is_file())
    with zipfile.ZipFile(path, "x") as jar:
        _add(jar, _MANIFEST, versions.manifest())
        for name in names:
            _add(jar, name, (classes / name).read_bytes())


def _add(jar: zipfile.ZipFile, name: str, content: bytes) -> None:
    info = zipfile.ZipInfo(name, _EARLIEST)
    info.external_attr = 0o644 << 16
    info.create_system = 3  # Unix, on any
    jar.writestr(info, content)  # stored: zlib's versions differ


def read(path: str | pathlib.Path) -> JarVersions | None:
    """Return the versions of a whole jar of ours; None if it isn't one, or is damaged.

    Cost: each file's CRC, some ms. Raises: OSError if it can't be read, FileNotFoundError.
    """
    try:
        with zipfile.ZipFile(path) as jar:
            lines = jar.read(_MANIFEST).decode().splitlines()
            values = dict(line.split(": ", 1) for line in lines if ": " in line)
            if values.get("Implementation-Title") != "sparklog" or jar.testzip() is not None:
                return None
    except (zipfile.BadZipFile, KeyError, UnicodeDecodeError, ValueError, EOFError):
        return None
    plans = values.get(_PLANS, "")
    return JarVersions(
        values.get(_SPARK, ""), values.get(_OWN, ""), int(plans) if plans.isdecimal() else 0
    )


def names_ours(name: str) -> bool:
    """Tell by the last part of its path or URL alone whether a jar is ours."""
    return name.rpartition("/")[2].startswith("sparklog-jvm") and name.endswith(".jar")


def given_among(names: Iterable[str]) -> str | None:
    """Return the first jar of ours among paths and URLs, by its name or what it says."""
    for name in names:
        if names_ours(name):
            return name
        with contextlib.suppress(OSError):
            if read(local_path(name)) is not None:
                return name
    return None


def local_path(name: str) -> str:
    """Return the path of a file: URL; anything else as it is."""
    return name.removeprefix("file://").removeprefix("file:")
