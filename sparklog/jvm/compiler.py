"""The Scala compiler that ships with Spark: compile sparklog's Scala sources for that Spark.

Needs a Java runtime, but no JDK, Maven or sbt.
"""

import hashlib
import importlib.resources
import os
import pathlib
import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.resources.abc import Traversable
from typing import Final

from sparklog.errors import InvalidRequestError
from sparklog.extras import needed
from sparklog.spark_support import check_spark, spark_version

_COMPILER: Final = "scala.tools.nsc.Main"
TIMEOUT_S: Final = 300
_JAVA: Final = 17  # the oldest version that Spark 4 supports, so executors may run it
_QUICK: Final = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xss8m")  # half the CPU time
_OF_VERSION: Final = re.compile(r"spark-([\d.]+)/(.+)")
_CORE: Final = re.compile(r"spark-core_[\d.]+-(.+)\.jar")


@dataclass(frozen=True, slots=True)
class Spark:
    """A Spark installation: its directory of jars, and their version."""

    jars: pathlib.Path
    version: str

    @staticmethod
    def installed() -> "Spark":
        """Return the Spark that this process's sessions would start: SPARK_HOME's, else pyspark's.

        Raises:
            InvalidRequestError: There is no Spark, or its jars are missing.
        """
        home = os.environ.get("SPARK_HOME")
        if home:
            jars = pathlib.Path(home) / "jars"
        else:
            with needed(InvalidRequestError):
                import pyspark
            jars = pathlib.Path(pyspark.__file__).parent / "jars"
        cores = filter(None, map(_CORE.fullmatch, sorted(p.name for p in jars.glob("spark-core*"))))
        core = next(cores, None)
        if core is None:
            raise _incomplete(jars, "spark-core")
        return Spark(jars, core[1])


def _incomplete(jars: pathlib.Path, what: str) -> InvalidRequestError:
    return InvalidRequestError(
        f"{jars} contains no {what}*.jar: install all of pyspark (pip install 'sparklog[spark]'), "
        "set SPARK_HOME to a Spark that has its jars, or set SPARKLOG_JAR to a jar made by "
        "`sparklog doctor --spark-conf --jar FILE` on a machine that has them"
    )


def sources(spark: str) -> list[tuple[str, bytes]]:
    """Return names and contents of the Scala files for a version of Spark, such as "4.1.4".

    The files that differ between versions are in folders such as spark-4.0. Of several files with
    the same name, the one of the newest version that is not newer than `spark` is used.

    Raises:
        InvalidRequestError: The version is older than all versions that sparklog supports.
    """
    check_spark(spark, "sparklog's jar")
    root = importlib.resources.files("sparklog.jvm").joinpath("scala")
    common, by_version = [], dict[str, tuple[str, bytes]]()
    for name, text in sorted(_scala_files(root, "")):
        found = _OF_VERSION.fullmatch(name)
        if found is None:
            common.append((name, text))
        elif spark_version(found[1]) <= spark_version(spark):
            by_version[found[2]] = (name, text)
    return common + sorted(by_version.values())


def sources_digest(scala: list[tuple[str, bytes]]) -> str:
    """Return a digest of the names and contents of Scala files."""
    parts = (part for name, text in scala for part in (name.encode(), text))
    return hashlib.sha256(b"\0".join(parts)).hexdigest()[:16]


def _scala_files(directory: Traversable, prefix: str) -> Iterator[tuple[str, bytes]]:
    for entry in directory.iterdir():
        if entry.is_dir():
            yield from _scala_files(entry, f"{prefix}{entry.name}/")
        elif entry.name.endswith(".scala"):
            yield prefix + entry.name, entry.read_bytes()


def compile_into(
    directory: pathlib.Path, scala: list[tuple[str, bytes]], spark: Spark, *options: str
) -> str:
    """Compile Scala files into an empty directory; return the compiler's output.

    Raises:
        InvalidRequestError: There is no Java or compiler, or the files don't compile against that
            Spark.

    Cost: about 5 s of CPU for sparklog's sources.
    """
    if not list(spark.jars.glob("scala-compiler*.jar")):
        raise _incomplete(spark.jars, "scala-compiler")
    texts, classes = directory / "scala", directory / "classes"
    classes.mkdir()
    for name, text in scala:
        (texts / name).parent.mkdir(parents=True, exist_ok=True)
        (texts / name).write_bytes(text)
    home = os.environ.get("JAVA_HOME")
    java = os.path.join(home, "bin", "java") if home else shutil.which("java") or "java"
    command = [java, *_QUICK, "-cp", f"{spark.jars}/*", _COMPILER, "-usejavacp", *options]
    files = [str(texts / name) for name, _ in scala]
    try:
        done = subprocess.run(
            [*command, _release(java), "-d", str(classes), *files],
            capture_output=True, text=True, timeout=TIMEOUT_S,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired) as e:
        raise InvalidRequestError(
            f"sparklog's jar couldn't be compiled ({e}): Spark needs a Java runtime, {_JAVA} or "
            "later; set JAVA_HOME to the directory of such a runtime"
        ) from e
    output = (done.stdout + done.stderr).strip().replace(f"{texts}/", "")
    if done.returncode != 0:
        raise InvalidRequestError(
            f"sparklog's jar doesn't compile against {spark.jars}, with {java} (sparklog needs "
            f"Spark 4.0 to 4.3 and Java {_JAVA} or later): {output[-2000:]}"
        )
    return output


def _release(java: str) -> str:
    """Return the compiler's option for classes that run on Java 17."""
    # -release needs the signatures of Java 17's classes, and only a JDK contains them (ct.sym). A
    # runtime without them gets the class file version only.
    found = shutil.which(java)
    home = pathlib.Path(found).resolve().parents[1] if found else pathlib.Path()
    known = (home / "lib" / "ct.sym").exists()
    return f"-release:{_JAVA}" if known else f"-Xunchecked-java-output-version:{_JAVA}"
