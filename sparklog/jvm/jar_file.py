"""A sparklog jar as a file: written reproducibly, with its versions in the manifest.

The manifest has Spark's version as the specification version, sparklog's as the implementation
version (read in the JVM by sparklog.Version), and the version of the JSON format in which Python
passes its plans to the JVM.
"""

import contextlib
import pathlib
import sys
import zipfile
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from sparklog.jvm.plans import PLAN_VERSION
from sparklog.spark_support import jar_version

VERSION: Final[str] = sys.modules[__name__.partition(".")[0]].__version__  # the package's

_MANIFEST: Final = "META-INF/MANIFEST.MF"
_PLANS: Final = "Sparklog-Plan-Version"
_SOURCES: Final = "Sparklog-Sources"
_SPARK, _OWN = "Specification-Version", "Implementation-Version"
_EARLIEST: Final = (1980, 1, 1, 0, 0, 0)  # the earliest time in a zip file
REMEDY: Final = (
    "make a new jar with this sparklog and that Spark: sparklog doctor --spark-conf --jar FILE; or "
    "leave it out, to use sparklog's own"
)


@dataclass(frozen=True, slots=True)
class JarVersions:
    """The versions that a jar was built from.

    Attributes:
        spark: The version of Spark.
        sparklog: The version of sparklog.
        plans: The version of the plans; 0 if the manifest has none.
        sources: A digest of the Scala sources; "" if the manifest has none.
    """

    spark: str
    sparklog: str = VERSION
    plans: int = PLAN_VERSION
    sources: str = ""

    def mismatch(self, spark: str | None) -> str | None:
        """Return why this package can't use the jar with a version of Spark, or None.

        Other patch versions of Spark are supported, other minor versions that need no jar of their
        own, and other versions of sparklog with the same plans. `spark` is None if unknown.
        """
        if self.plans != PLAN_VERSION:
            return (
                f"the jar was made by sparklog {self.sparklog}, with plans of version "
                f"{self.plans}; this is sparklog {VERSION}, with plans of version {PLAN_VERSION}"
            )
        # Spark changes internal classes with a minor version, and keeps them in patches.
        if spark is not None and jar_version(self.spark) != jar_version(spark):
            return f"the jar was made for Spark {self.spark}, this is Spark {spark}"
        return None

    def manifest(self) -> bytes:
        """Return the content of META-INF/MANIFEST.MF."""
        values = {
            "Manifest-Version": "1.0", "Specification-Title": "Apache Spark", _SPARK: self.spark,
            "Implementation-Title": "sparklog", _OWN: self.sparklog, _PLANS: str(self.plans),
            _SOURCES: self.sources,
        }  # fmt: skip
        return "".join(f"{key}: {value}\r\n" for key, value in values.items()).encode() + b"\r\n"


def write(path: pathlib.Path, classes: pathlib.Path, versions: JarVersions) -> None:
    """Write a jar of the files below `classes`; equal files give equal bytes."""
    names = sorted(p.relative_to(classes).as_posix() for p in classes.rglob("*") if p.is_file())
    with zipfile.ZipFile(path, "x") as jar:
        _add(jar, _MANIFEST, versions.manifest())
        for name in names:
            _add(jar, name, (classes / name).read_bytes())


def _add(jar: zipfile.ZipFile, name: str, content: bytes) -> None:
    # The time, the mode and the system of the host would make equal files differ.
    info = zipfile.ZipInfo(name, _EARLIEST)
    info.external_attr = 0o644 << 16
    info.create_system = 3  # Unix, on every system
    jar.writestr(info, content)  # uncompressed, because versions of zlib differ


def read(path: str | pathlib.Path) -> JarVersions | None:
    """Return the versions of a sparklog jar, or None for another or damaged file.

    Raises:
        OSError: The file can't be read.

    Cost: a few ms, to check each file's CRC.
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
        values.get(_SPARK, ""), values.get(_OWN, ""), int(plans) if plans.isdecimal() else 0,
        values.get(_SOURCES, ""),
    )  # fmt: skip


def names_ours(name: str) -> bool:
    """Return whether the last part of a path or URL names a sparklog jar."""
    return name.rpartition("/")[2].startswith("sparklog-jvm") and name.endswith(".jar")


def given_among(names: Iterable[str]) -> str | None:
    """Return the first sparklog jar among paths and URLs, by file name or jar manifest."""
    for name in names:
        if names_ours(name):
            return name
        with contextlib.suppress(OSError):
            if read(local_path(name)) is not None:
                return name
    return None


def local_path(name: str) -> str:
    """Return the path of a file: URL; other values are returned unchanged."""
    return name.removeprefix("file://").removeprefix("file:")
