"""Java parts of the tests: brought by Maven once, kept in a cache, and why they are missing.

The cache is ~/.cache/sparklog-test (SPARKLOG_TEST_CACHE overrides it). A test that needs a part
calls for it through a fixture, which skips with the text of `Unavailable`.
"""

import contextlib
import fcntl
import hashlib
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

HERE = Path(__file__).parent
POM = HERE / "oracle" / "pom.xml"
CONNECTOR = (  # Spark's Kafka connector, newest versions that run on pyspark 4.3
    "org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0",
    "org.apache.spark:spark-token-provider-kafka-0-10_2.13:4.0.0",
    "org.apache.kafka:kafka-clients:3.9.1",
    "org.apache.commons:commons-pool2:2.12.1",
)


class Unavailable(Exception):
    """A tool or a download is missing here; the text says which."""


@contextlib.contextmanager
def or_skip(what: str) -> Iterator[None]:
    """Skip the test that needs what is made within if that is unavailable here."""
    import pytest

    try:
        yield
    except Unavailable as reason:
        pytest.skip(f"{what}: {reason}")


def cache() -> Path:
    """Return the directory for jars and classes, made if needed."""
    path = os.environ.get("SPARKLOG_TEST_CACHE")
    directory = Path(path) if path else Path.home() / ".cache" / "sparklog-test"
    directory.mkdir(parents=True, exist_ok=True)
    return directory


def java(tool: str = "java") -> str:
    """Return the path of a JDK tool: JAVA_HOME's, else PATH's."""
    home = os.environ.get("JAVA_HOME")
    found = shutil.which(str(Path(home) / "bin" / tool)) if home else None
    found = found or shutil.which(tool)
    if found is None:
        raise Unavailable(f"no {tool} (a JDK's) in JAVA_HOME or PATH")
    return found


def kafka_jars() -> str:
    """Return the class path of Kafka 4.1's server, tools and their dependencies."""
    return pom_jars(POM, "kafka")


def pom_jars(pom: Path, name: str, *properties: str) -> str:
    """Return the class path of what a pom names, with all dependencies.

    `properties` are options of Maven, such as -Dhadoop.version=3.4.1.
    """
    stamp = hashlib.sha256(pom.read_bytes() + " ".join(properties).encode()).hexdigest()[:12]
    directory = cache() / f"{name}-{stamp}"

    def fetch(target: Path) -> None:
        copy = ["dependency:copy-dependencies", f"-DoutputDirectory={target}"]
        _maven("-f", str(pom), *properties, *copy)

    once(directory, fetch)
    return str(directory / "*")


def connector_jars() -> list[str]:
    """Return the jars of Spark's Kafka connector, for `spark.jars`."""
    return artifact_jars("connector", *CONNECTOR)


def artifact_jars(name: str, *artifacts: str) -> list[str]:
    """Return the jars of the artifacts, without their dependencies."""
    stamp = hashlib.sha256(" ".join(artifacts).encode()).hexdigest()[:12]
    directory = cache() / f"{name}-{stamp}"

    def fetch(target: Path) -> None:
        for artifact in artifacts:
            _maven("dependency:copy", f"-Dartifact={artifact}", f"-DoutputDirectory={target}")

    once(directory, fetch)
    return sorted(map(str, directory.glob("*.jar")))


def compiled(source: Path, class_path: str) -> str:
    """Compile one Java source; return the class path to run it with."""
    stamp = hashlib.sha256(source.read_bytes() + class_path.encode()).hexdigest()[:12]
    directory = cache() / f"{source.stem}-{stamp}"

    def build(target: Path) -> None:
        command = [java("javac"), "-nowarn", "-d", str(target), "-cp", class_path, str(source)]
        subprocess.run(command, check=True)

    once(directory, build)
    return f"{directory}{os.pathsep}{class_path}"


def _maven(*arguments: str) -> None:
    mvn = shutil.which("mvn")
    if mvn is None:
        raise Unavailable("no mvn in PATH")
    command = [mvn, "-q", "-B", *arguments]
    done = subprocess.run(
        command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=600, cwd=cache()
    )
    if done.returncode != 0:
        lines = [line for line in done.stdout.splitlines() if "ERROR" in line]
        raise Unavailable(f"mvn can't bring the jars: {(lines or ['?'])[0][:300]}")


def once(directory: Path, build: Callable[[Path], None]) -> None:
    """Build a directory whole or not at all, by one process at a time."""
    if directory.is_dir():
        return
    with _locked(cache() / "lock"):
        if directory.is_dir():
            return
        temporary = directory.with_name(f".{directory.name}.{os.getpid()}")
        shutil.rmtree(temporary, ignore_errors=True)
        temporary.mkdir()
        try:
            build(temporary)
            temporary.rename(directory)
        finally:
            shutil.rmtree(temporary, ignore_errors=True)


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
