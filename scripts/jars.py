"""Build the jars of sparklog's Scala code for the wheel: one for each Spark that needs its own.

    python scripts/jars.py [--update] [--maven DIRECTORY]

Downloads the artifacts that the code is compiled against, and the Scala compiler of each Spark,
from Maven Central (about 105 MB per version). Compiles the jars into sparklog/jvm/jars, unless they
are there already. Equal sources give equal bytes on every host: the jars must have the digests in
sparklog/jvm/jars/SHA256SUMS. --update writes that file, after a change of the Scala sources.
--maven also writes the jars as artifacts of a Maven repository, for --packages of Spark. Needs
Maven and a Java runtime.
"""

import argparse
import hashlib
import pathlib
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from sparklog.errors import InvalidRequestError  # noqa: E402 - of this checkout
from sparklog.jvm import jar_file, packaged_jar  # noqa: E402
from sparklog.jvm.compiler import Spark, compile_into, sources, sources_digest  # noqa: E402

JARS = ROOT / "sparklog" / "jvm" / "jars"


@dataclass(frozen=True)
class Release:
    """A release of Spark, and the versions of the libraries that it contains."""

    spark: str
    scala: str
    hadoop: str
    slf4j: str
    jackson: str
    jackson_annotations: str
    zstd_jni: str
    lz4: str
    snappy: str

    def artifacts(self) -> list[str]:
        """Return what the sources are compiled against, and the compiler, as Maven coordinates."""
        spark = ["sql", "catalyst", "core", "sql-api", "common-utils", "unsafe", "tags"]
        if not self.spark.startswith("4.0."):
            spark.append("common-utils-java")
        scala = ["compiler", "library", "reflect"]
        jackson = "com.fasterxml.jackson.core:jackson"
        return [
            *(f"org.apache.spark:spark-{name}_2.13:{self.spark}" for name in spark),
            *(f"org.scala-lang:scala-{name}:{self.scala}" for name in scala),
            f"org.apache.hadoop:hadoop-client-api:{self.hadoop}",
            f"org.slf4j:slf4j-api:{self.slf4j}",
            f"{jackson}-databind:{self.jackson}",
            f"{jackson}-core:{self.jackson}",
            f"{jackson}-annotations:{self.jackson_annotations}",
            "net.razorvine:pickle:1.5",
            "org.json4s:json4s-ast_2.13:4.0.7",
            f"com.github.luben:zstd-jni:{self.zstd_jni}",
            self.lz4,
            f"org.xerial.snappy:snappy-java:{self.snappy}",
            "com.esotericsoftware:kryo-shaded:4.0.3",
        ]


RELEASES = (
    Release(
        "4.0.4", "2.13.16", "3.4.1", "2.0.16", "2.18.6", "2.18.6", "1.5.6-9",
        "org.lz4:lz4-java:1.8.0", "1.1.10.7",
    ),
    Release(
        "4.1.3", "2.13.17", "3.4.2", "2.0.17", "2.21.2", "2.21", "1.5.7-6",
        "org.lz4:lz4-java:1.8.0", "1.1.10.8",
    ),
    Release(
        "4.2.0", "2.13.18", "3.5.0", "2.0.17", "2.21.2", "2.21", "1.5.7-7",
        "at.yawk.lz4:lz4-java:1.11.0", "1.1.10.8",
    ),
)  # fmt: skip
"""One release for each jar; the jar of 4.2 also works in 4.3."""

POM = """<project>
  <modelVersion>4.0.0</modelVersion>
  <groupId>sparklog</groupId><artifactId>jars</artifactId><version>1</version>
  <packaging>pom</packaging>
  <build><plugins><plugin>
    <groupId>org.apache.maven.plugins</groupId>
    <artifactId>maven-dependency-plugin</artifactId><version>3.6.1</version>
    <configuration>
      <outputDirectory>{directory}</outputDirectory>
      <artifactItems>{items}</artifactItems>
    </configuration>
  </plugin></plugins></build>
</project>
"""
ITEM = (
    "<artifactItem><groupId>{}</groupId><artifactId>{}</artifactId>"
    "<version>{}</version></artifactItem>"
)
GROUP = "io.sparklog"
ARTIFACT_POM = """<?xml version="1.0" encoding="UTF-8"?>
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>{group}</groupId>
  <artifactId>{artifact}</artifactId>
  <version>{version}</version>
  <packaging>jar</packaging>
  <name>sparklog for Spark {spark}</name>
  <description>The Scala part of sparklog: Kafka's storage engine inside Spark</description>
  <licenses>
    <license>
      <name>Apache-2.0</name>
      <url>https://www.apache.org/licenses/LICENSE-2.0.txt</url>
    </license>
  </licenses>
</project>
"""


def write_artifact(release: Release, repository: pathlib.Path) -> str:
    """Write a jar to a Maven repository, with pom and checksums; return its coordinates."""
    jar = JARS / packaged_jar.jar_name(release.spark)
    spark = jar.stem.removeprefix("sparklog-jvm-")
    artifact, version = f"sparklog-jvm-spark-{spark}_2.13", jar_file.VERSION
    directory = repository.joinpath(*GROUP.split("."), artifact, version)
    directory.mkdir(parents=True, exist_ok=True)
    pom = ARTIFACT_POM.format(group=GROUP, artifact=artifact, version=version, spark=spark)
    for suffix, content in ((".pom", pom.encode()), (".jar", jar.read_bytes())):
        file = directory / f"{artifact}-{version}{suffix}"
        file.write_bytes(content)
        for name in ("md5", "sha1", "sha256"):
            digest = hashlib.new(name, content, usedforsecurity=False).hexdigest()
            file.with_name(f"{file.name}.{name}").write_text(digest)
    return f"{GROUP}:{artifact}:{version}"


class Unavailable(Exception):
    """The jars can't be built here; the text says why."""


def download(release: Release, directory: pathlib.Path) -> None:
    """Copy the artifacts of a release to a directory. Raises: Unavailable."""
    items = "".join(ITEM.format(*artifact.split(":")) for artifact in release.artifacts())
    with tempfile.NamedTemporaryFile("w", suffix=".xml") as pom:
        pom.write(POM.format(directory=directory, items=items))
        pom.flush()
        command = ["mvn", "-q", "-B", "-f", pom.name, "dependency:copy"]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=900)
        except (OSError, subprocess.TimeoutExpired) as error:
            raise Unavailable(f"Maven can't be run ({error})") from error
    if done.returncode != 0:
        lines = [line for line in done.stdout.splitlines() if "ERROR" in line]
        raise Unavailable(f"Maven can't bring the artifacts: {(lines or ['?'])[0][:300]}")


def build(release: Release, target: pathlib.Path) -> None:
    """Build the jar for a release of Spark in a directory. Raises: Unavailable."""
    scala = sources(release.spark)
    versions = jar_file.JarVersions(release.spark, sources=sources_digest(scala))
    path = target / packaged_jar.jar_name(release.spark)
    with tempfile.TemporaryDirectory(dir=target, prefix=".") as directory:
        work = pathlib.Path(directory)
        download(release, work / "lib")
        try:
            compile_into(work, scala, Spark(work / "lib", release.spark), "-nowarn")
        except InvalidRequestError as error:
            raise Unavailable(str(error)) from error
        jar_file.write(work / "built.jar", work / "classes", versions)
        (work / "built.jar").replace(path)


def is_built(release: Release) -> bool:
    """Return whether there is a jar, built from the present sources."""
    path = JARS / packaged_jar.jar_name(release.spark)
    digest = sources_digest(sources(release.spark))
    return path.is_file() and packaged_jar.is_current(path, digest)


def main(arguments: Sequence[str] | None = None) -> int:
    """Build what is missing; return the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--update", action="store_true", help="write SHA256SUMS")
    parser.add_argument("--maven", metavar="DIRECTORY", help="write a Maven repository")
    options = parser.parse_args(arguments)
    JARS.mkdir(exist_ok=True)
    try:
        for release in RELEASES:
            if not is_built(release):
                build(release, JARS)
    except Unavailable as error:
        print(f"The jars can't be built: {error}", file=sys.stderr)
        return 1
    names = [packaged_jar.jar_name(release.spark) for release in RELEASES]
    found = {name: hashlib.sha256((JARS / name).read_bytes()).hexdigest() for name in names}
    if options.update:
        lines = (f"{digest}  {name}\n" for name, digest in found.items())
        (JARS / packaged_jar.SUMS).write_text("".join(lines))
    wrong = sorted(found.items() ^ packaged_jar.digests(JARS).items())
    if wrong:
        print(
            f"{JARS / packaged_jar.SUMS} does not have the digests of {sorted(dict(wrong))}: after "
            "a change of the Scala sources run: make jars UPDATE=--update",
            file=sys.stderr,
        )
        return 1
    if options.maven:
        for release in RELEASES:
            print(write_artifact(release, pathlib.Path(options.maven)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
