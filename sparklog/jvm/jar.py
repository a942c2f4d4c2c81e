"""The jar of what runs in Spark's JVM: compiled at first use, by the compiler of pyspark.

Spark's classes change with every minor version, so a jar belongs to one of them: it is kept by the
version of Spark and the digest of its sources. No JDK, Maven or sbt is needed, a Java runtime does.
"""

import hashlib
import importlib.resources
import os
import pathlib
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from importlib.resources.abc import Traversable

from sparklog.errors import InvalidRequestError
from sparklog.extras import needed
from sparklog.fs import LOCAL

CACHE_VARIABLE = "SPARKLOG_CACHE"
_COMPILER = "scala.tools.nsc.Main"
_TIMEOUT_S = 300


def jar() -> str:
    """Return the path of the jar for the pyspark that is installed; takes about 10 s at first use.

    It is kept below $SPARKLOG_CACHE, else $XDG_CACHE_HOME/sparklog, else ~/.cache/sparklog.

    Raises: InvalidRequestError if there is no Java, no pyspark, or nowhere to write to.
    """
    with needed(InvalidRequestError):
        import pyspark
    sources = _sources()
    digest = hashlib.sha256(b"".join(text for _, text in sources)).hexdigest()
    name = f"sparklog-jvm-{pyspark.__version__}-{digest[:16]}.jar"
    home = _cache()
    path = home / name
    if not path.exists():
        with tempfile.TemporaryDirectory(dir=home, prefix=".compiling-") as directory:
            built = _compile(sources, _jars_of(pathlib.Path(pyspark.__file__).parent), directory)
            LOCAL.rename(str(built), str(path))
    return str(path)


def _sources() -> list[tuple[str, bytes]]:
    """Names and texts of the Scala files; one in a package begins with its folder."""
    root = importlib.resources.files("sparklog.jvm").joinpath("scala")
    return sorted(_scala_files(root, ""))


def _scala_files(directory: Traversable, prefix: str) -> Iterator[tuple[str, bytes]]:
    for entry in directory.iterdir():
        if entry.is_dir():
            yield from _scala_files(entry, f"{prefix}{entry.name}-")
        elif entry.name.endswith(".scala"):
            yield prefix + entry.name, entry.read_bytes()


def _cache() -> pathlib.Path:
    base = os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache"
    home = pathlib.Path(os.environ.get(CACHE_VARIABLE) or pathlib.Path(base) / "sparklog")
    try:
        home.mkdir(parents=True, exist_ok=True)
    except OSError as e:
        raise InvalidRequestError(
            f"{home} can't be made for the compiled jar ({e.strerror}): set "
            f"{CACHE_VARIABLE} to a directory that can be written"
        ) from e
    return home


def _jars_of(pyspark: pathlib.Path) -> pathlib.Path:
    home = os.environ.get("SPARK_HOME")
    jars = pathlib.Path(home) / "jars" if home else pyspark / "jars"
    if not list(jars.glob("scala-compiler*.jar")):
        raise InvalidRequestError(
            f"{jars} has no Scala compiler: install pyspark whole (pip install 'sparklog[spark]'), "
            "or set SPARK_HOME to a Spark that has its jars"
        )
    return jars


def _compile(sources: list[tuple[str, bytes]], jars: pathlib.Path, directory: str) -> pathlib.Path:
    folder = pathlib.Path(directory)
    for name, text in sources:
        (folder / name).write_bytes(text)
    built = folder / "built.jar"
    files = [str(folder / name) for name, _ in sources]
    classes = [f"{jars}/*", _COMPILER, "-usejavacp", "-nowarn", "-d", str(built)]
    try:
        done = subprocess.run(
            [_java(), "-cp", *classes, *files], capture_output=True, text=True, timeout=_TIMEOUT_S
        )
    except (OSError, subprocess.TimeoutExpired) as e:
        raise InvalidRequestError(
            f"sparklog's jar couldn't be compiled ({e}): Spark needs a Java runtime, 17 or "
            "later; set JAVA_HOME to it"
        ) from e
    if done.returncode != 0 or not built.exists():
        raise InvalidRequestError(
            f"sparklog's jar doesn't compile against {jars} (sparklog is made for Spark "
            f"4.3): {(done.stdout + done.stderr).strip()[-2000:]}"
        )
    return built


def _java() -> str:
    home = os.environ.get("JAVA_HOME")
    if home:
        return os.path.join(home, "bin", "java")
    return shutil.which("java") or "java"
