"""The jar in the package: which one serves which Spark, and what may have happened to it."""

import hashlib
import zipfile
from pathlib import Path

import pytest

from sparklog.errors import InvalidRequestError
from sparklog.jvm import packaged_jar as packaged
from sparklog.jvm.compiler import sources, sources_digest
from sparklog.jvm.jar_file import JarVersions, write
from sparklog.spark_support import JARS, SUPPORTED, jar_version


def digest(spark: str) -> str:
    return sources_digest(sources(spark))


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The package's folder of jars, with the one of 4.1 and 4.2, of the present sources."""
    folder, classes = tmp_path / "jars", tmp_path / "classes"
    (classes / "sparklog").mkdir(parents=True)
    (classes / "sparklog" / "Version.class").write_bytes(b"\xca\xfe\xba\xbe")
    folder.mkdir()
    lines = []
    for spark in ("4.1.3", "4.2.0"):
        path = folder / packaged.jar_name(spark)
        write(path, classes, JarVersions(spark, sources=digest(spark)))
        lines.append(f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n")
    (folder / packaged.SUMS).write_text("".join(lines))
    monkeypatch.setattr(packaged, "folder", lambda: folder)
    return folder


def found(spark: str) -> str | None:
    path = packaged.packaged_jar(spark, digest(spark))
    return None if path is None else Path(path).name


def test_the_jar_of_each_spark(folder: Path) -> None:
    assert found("4.1.0") == found("4.1.4") == "sparklog-jvm-4.1.jar"
    assert found("4.2.1") == found("4.3.0") == "sparklog-jvm-4.2.jar"
    assert found("4.0.5") is None  # of this folder
    assert found("4.4.0") is None  # an unknown Spark may have changed what the jar needs


def test_each_version_with_files_of_its_own_has_a_jar() -> None:
    root = Path(packaged.__file__).parent / "scala"
    folders = {tuple(map(int, p.name[6:].split("."))) for p in root.glob("spark-*")}
    assert folders == set(JARS)
    assert {jar_version(f"{major}.{minor}.9") for major, minor in SUPPORTED} == set(JARS)


@pytest.mark.parametrize("missing", ["folder", "jar", "sums", "line"])
def test_a_package_without_jars(folder: Path, missing: str) -> None:
    sums = folder / packaged.SUMS
    if missing == "folder":
        folder.rename(folder.with_name("elsewhere"))
    elif missing == "jar":
        (folder / "sparklog-jvm-4.1.jar").unlink()
    elif missing == "sums":
        sums.unlink()
    else:
        sums.write_text("".join(sums.read_text().splitlines(keepends=True)[1:]))
    assert found("4.1.4") is None


def test_a_jar_of_other_sources_is_not_used(folder: Path) -> None:
    """As in a checkout whose sources were changed, or with the jars of two versions swapped."""
    assert packaged.packaged_jar("4.1.4", digest("4.2.0")) is None


@pytest.mark.parametrize("how", ["cut", "flipped", "empty", "added to"])
def test_a_damaged_jar_is_refused(folder: Path, how: str) -> None:
    path = folder / "sparklog-jvm-4.1.jar"
    whole = path.read_bytes()
    if how == "cut":
        path.write_bytes(whole[:-100])
    elif how == "flipped":
        at = whole.index(b"\xca\xfe\xba\xbe")
        path.write_bytes(whole[:at] + b"\0" + whole[at + 1 :])
    elif how == "empty":
        path.write_bytes(b"")
    else:
        with zipfile.ZipFile(path, "a") as jar:
            jar.writestr("sparklog/Other.class", b"\xca\xfe\xba\xbe")
    with pytest.raises(InvalidRequestError, match=r"is damaged, or was changed.*install sparklog"):
        found("4.1.4")
    path.write_bytes(whole)  # installed again
    assert found("4.1.4") == path.name
