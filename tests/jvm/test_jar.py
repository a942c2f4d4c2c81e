"""Where the jar comes from: compiled once, kept, given, written for others, or refused."""

import fcntl
import os
import pathlib
import subprocess
import sys
import threading
import time
import zipfile
from collections.abc import Iterator

import pytest
from click.testing import CliRunner

from sparklog.cli.doctor import doctor
from sparklog.errors import InvalidRequestError
from sparklog.jvm import jar as jars
from sparklog.jvm.compiler import Spark, compile_into, sources, sources_digest
from sparklog.jvm.jar import CACHE_VARIABLE, JAR_VARIABLE, jar, write_jar
from sparklog.jvm.jar_file import JarVersions, read, write
from sparklog.jvm.plans import PLAN_VERSION
from tests.jars import java


@pytest.fixture
def cache(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> pathlib.Path:
    """A cache that isn't there yet, for a package without jars."""
    monkeypatch.setattr(jars, "packaged_jar", lambda *_: None)
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path / "new" / "cache"))
    monkeypatch.delenv(JAR_VARIABLE, raising=False)
    monkeypatch.delenv("SPARK_HOME", raising=False)
    return tmp_path / "new" / "cache"


@pytest.fixture
def compiled(cache: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> list[pathlib.Path]:
    """Directories that were compiled into, by a compiler that is quick and makes one class."""
    done: list[pathlib.Path] = []

    def compiler(directory: pathlib.Path, *_: object) -> str:
        done.append(directory)
        (directory / "classes" / "sparklog").mkdir(parents=True)
        (directory / "classes" / "sparklog" / "Version.class").write_bytes(b"\xca\xfe\xba\xbe")
        time.sleep(0.2)
        return ""

    monkeypatch.setattr(jars, "compile_into", compiler)
    return done


def listed(cache: pathlib.Path) -> list[str]:
    """Jars of the cache, and what is left over."""
    return sorted(name for name in os.listdir(cache) if name != ".lock")


def made(path: pathlib.Path, spark: str, plans: int = PLAN_VERSION) -> str:
    """A jar of those versions."""
    classes = path.parent / "no classes"
    classes.mkdir(exist_ok=True)
    write(path, classes, JarVersions(spark, "7.7.7", plans))
    return str(path)


def test_compiled_once_and_kept_whole(cache: pathlib.Path, compiled: list[pathlib.Path]) -> None:
    first = jar()
    written = os.stat(first)
    assert jar() == first
    assert len(compiled) == 1
    now = os.stat(first)
    assert (now.st_mtime_ns, now.st_ino) == (written.st_mtime_ns, written.st_ino)
    assert listed(cache) == [os.path.basename(first)]
    assert os.path.basename(first).startswith(f"sparklog-jvm-{Spark.installed().version}-")
    spark = Spark.installed().version
    assert read(first) == JarVersions(spark, sources=sources_digest(sources(spark)))


def test_first_users_at_once_compile_once(
    cache: pathlib.Path, compiled: list[pathlib.Path]
) -> None:
    found: list[str] = []
    users = [threading.Thread(target=lambda: found.append(jar())) for _ in range(4)]
    for user in users:
        user.start()
    for user in users:
        user.join()
    assert len(found) == 4
    assert len({*found}) == len(compiled) == 1
    assert listed(cache) == [os.path.basename(found[0])]


def test_two_compile_where_nothing_locks(
    cache: pathlib.Path, compiled: list[pathlib.Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: object) -> None:
        raise OSError(38, "no locks here")

    compiler, both = jars.compile_into, threading.Barrier(2)

    def together(*given: object) -> str:
        both.wait(240)
        return compiler(*given)  # type: ignore[arg-type]

    monkeypatch.setattr(jars, "compile_into", together)
    monkeypatch.setattr("sparklog.jvm.jar.fcntl.flock", refused)
    users = [threading.Thread(target=jar) for _ in range(2)]
    for user in users:
        user.start()
    for user in users:
        user.join()
    assert len(compiled) == 2
    assert len(listed(cache)) == 1
    assert read(jar()) is not None


def test_one_that_stands_still_is_not_waited_for(
    cache: pathlib.Path, compiled: list[pathlib.Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was stopped in its compiling; what it has begun is left to it."""
    monkeypatch.setattr(jars, "WAIT_S", 0.3)
    (cache / ".compiling-still").mkdir(parents=True)
    with (cache / ".lock").open("wb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        path = jar()
    assert len(compiled) == 1
    assert listed(cache) == [".compiling-still", os.path.basename(path)]


@pytest.mark.parametrize("damage", ["empty", "cut", "flipped", "a directory's place", "foreign"])
def test_a_damaged_one_is_compiled_anew(
    cache: pathlib.Path, compiled: list[pathlib.Path], damage: str
) -> None:
    """A disk was full, a power cut came, a copy went wrong: the next process mends it."""
    path = pathlib.Path(jar())
    whole = path.read_bytes()
    match damage:
        case "empty":
            path.write_bytes(b"")
        case "cut":
            path.write_bytes(whole[: len(whole) // 2])
        case "flipped":
            at = whole.index(b"\xca\xfe\xba\xbe")
            path.write_bytes(whole[:at] + b"\xcb" + whole[at + 1 :])
        case "foreign":
            with zipfile.ZipFile(path, "w") as other:
                other.writestr("META-INF/MANIFEST.MF", "Implementation-Title: other\n")
        case _:
            path.unlink()
    opened = path.open("rb") if path.exists() else None  # a JVM's, which goes on with what it has
    was = opened.read() if opened else b""
    assert jar() == str(path)
    assert (len(compiled), path.read_bytes()) == (2, whole)
    if opened:
        opened.seek(0)
        assert opened.read() == was
        opened.close()
    assert listed(cache) == [path.name]


def test_what_a_killed_process_left_goes(cache: pathlib.Path, compiled: list[pathlib.Path]) -> None:
    (cache / ".compiling-dead" / "classes").mkdir(parents=True)
    assert listed(cache) == [".compiling-dead"]
    path = jar()
    assert listed(cache) == [os.path.basename(path)]


@pytest.fixture
def read_only(small_disk: pathlib.Path) -> Iterator[pathlib.Path]:
    """A disk that can be `sealed`."""
    yield small_disk
    subprocess.run(["mount", "-o", "remount,rw", str(small_disk)], check=True)


def sealed(disk: pathlib.Path) -> None:
    subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)


def test_a_cache_that_is_read_only(
    read_only: pathlib.Path, compiled: list[pathlib.Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As an image has it: with the jar in it that will do, without it is said."""
    monkeypatch.setenv(CACHE_VARIABLE, str(read_only / "cache"))
    path = jar()
    sealed(read_only)
    assert jar() == path
    monkeypatch.setenv(CACHE_VARIABLE, str(read_only))
    with pytest.raises(InvalidRequestError, match=r"Read-only.*SPARKLOG_CACHE.*SPARKLOG_JAR"):
        jar()
    monkeypatch.setenv(CACHE_VARIABLE, str(read_only / "cache"))
    with pytest.raises(InvalidRequestError, match="can't be written to"):
        write_jar(f"{read_only}/out.jar")
    assert len(compiled) == 1


def test_a_full_disk(
    small_disk: pathlib.Path, compiled: list[pathlib.Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(CACHE_VARIABLE, str(small_disk))
    with (
        pytest.raises(OSError, match="No space"),
        (small_disk / "full").open("wb", buffering=0) as file,
    ):
        while file.write(bytes(4096)):
            pass
    with pytest.raises(InvalidRequestError, match="No space left on device"):
        jar()
    os.truncate(small_disk / "full", 0)
    assert read(jar()) is not None


def test_nowhere_to_write_to(
    cache: pathlib.Path, compiled: list[pathlib.Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    cache.parent.mkdir()
    cache.write_bytes(b"a file")
    with pytest.raises(InvalidRequestError, match=f"set {CACHE_VARIABLE} to .*, or {JAR_VARIABLE}"):
        jar()
    monkeypatch.setenv(CACHE_VARIABLE, str(cache.parent / "another"))
    elsewhere = write_jar(str(cache.parent / "elsewhere.jar"))
    monkeypatch.setenv(CACHE_VARIABLE, str(cache))
    monkeypatch.setenv(JAR_VARIABLE, elsewhere)
    assert jar() == elsewhere
    monkeypatch.delenv(JAR_VARIABLE)
    monkeypatch.delenv(CACHE_VARIABLE)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.delenv("HOME", raising=False)
    monkeypatch.setattr(os.path, "expanduser", lambda path: path)
    with pytest.raises(InvalidRequestError, match="the user has no home directory"):
        jar()


def test_of_the_spark_that_would_run(
    cache: pathlib.Path,
    compiled: list[pathlib.Path],
    tmp_path: pathlib.Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """SPARK_HOME's jars count, not the version of pyspark that is imported."""
    own = jar()
    (tmp_path / "spark" / "jars").mkdir(parents=True)
    monkeypatch.setenv("SPARK_HOME", str(tmp_path / "spark"))
    with pytest.raises(InvalidRequestError, match=r"no spark-core\*\.jar: install .*SPARKLOG_JAR"):
        jar()
    with monkeypatch.context() as patch:
        patch.setenv(JAR_VARIABLE, own)
        assert jar() == own
    (tmp_path / "spark/jars/spark-core_2.13-4.3.1-vendor-2.jar").write_bytes(b"")
    other = jar()
    assert os.path.basename(other).startswith("sparklog-jvm-4.3.1-vendor-2-")
    assert (read(other), len(compiled)) == (
        JarVersions("4.3.1-vendor-2", sources=sources_digest(sources("4.3.1"))), 2
    )  # fmt: skip
    monkeypatch.delenv("SPARK_HOME")
    assert jar() == own


def test_a_given_one_is_taken_or_refused(
    cache: pathlib.Path,
    compiled: list[pathlib.Path],
    tmp_path: pathlib.Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Another sparklog's will do if it has the same plans, another patch of Spark's, too."""
    ours = Spark.installed().version
    right = made(tmp_path / "any name.jar", ours.rpartition(".")[0] + ".99")
    assert jar([str(tmp_path / "missing.jar"), right]) == right
    assert jar([f"file://{right}"]) == f"file://{right}"
    monkeypatch.setenv(JAR_VARIABLE, right)
    assert jar() == right
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(JAR_VARIABLE, "any name.jar")
    assert jar() == right
    far = "hdfs://host/libs/sparklog-jvm.jar"  # what isn't here is checked in the session
    assert jar(["s3://b/app.jar", far]) == far
    assert compiled == []
    other = "4.2.0" if ours.startswith("4.0") else "4.0.0"
    for path, reason in (
        (made(tmp_path / "1.jar", other), f"made for Spark {other}, this is Spark {ours}"),
        (made(tmp_path / "2.jar", ours, PLAN_VERSION + 1), "sparklog 7.7.7, with plans of version"),
        (str(tmp_path / "gone.jar"), "No such file"),
        (__file__, "isn't a complete jar of sparklog"),
    ):
        monkeypatch.setenv(JAR_VARIABLE, path)
        with pytest.raises(InvalidRequestError, match=reason) as told:
            jar()
        assert path in str(told.value)
        assert "sparklog doctor --spark-conf --jar FILE; or leave it out, to" in str(told.value)
        options = ["--spark-conf", "--jar", str(tmp_path / "new.jar"), "--json"]
        new = CliRunner().invoke(doctor, options)
        assert new.exit_code == 0, new.output
        monkeypatch.setenv(JAR_VARIABLE, str(tmp_path / "new.jar"))
        assert jar() == str(tmp_path / "new.jar")
        monkeypatch.delenv(JAR_VARIABLE)  # "or leave it out, to use sparklog's own"
        assert pathlib.Path(jar()).parent == cache
    monkeypatch.setenv(JAR_VARIABLE, far)  # it is elsewhere, so that there is nothing to copy
    assert write_jar(str(tmp_path / "new.jar")) == str(tmp_path / "new.jar")
    assert len(compiled) == 1


def test_written_for_others(
    cache: pathlib.Path,
    compiled: list[pathlib.Path],
    tmp_path: pathlib.Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    kept = pathlib.Path(jar())
    to = tmp_path / "to"
    to.mkdir()
    monkeypatch.chdir(to)
    assert write_jar("sparklog.jar") == str(to / "sparklog.jar")
    assert write_jar(str(to)) == write_jar(f"{to}/") == str(to / kept.name)
    assert (to / "sparklog.jar").read_bytes() == (to / kept.name).read_bytes() == kept.read_bytes()
    inode = (to / kept.name).stat().st_ino
    write_jar(str(to))
    assert (to / kept.name).stat().st_ino != inode  # whole at any moment, for who has it open
    made(to / "old.jar", "4.2.0")
    write_jar("old.jar")
    assert (to / "old.jar").read_bytes() == kept.read_bytes()
    assert write_jar(str(cache)) == str(kept)  # its own place
    (to / "app.jar").write_bytes(b"mine")
    for target, reason in (
        ("app.jar", "isn't a complete jar of sparklog: remove it"),
        ("no/where.jar", "No such file or directory"),
        ("nowhere/", "No such file or directory"),
        ("app.jar/x", "Not a directory"),
    ):
        with pytest.raises(InvalidRequestError, match=reason) as told:
            write_jar(target)
        is_other = "name another file" in str(told.value)
        assert is_other != ("name a writable file or directory" in str(told.value))
    assert (to / "app.jar").read_bytes() == b"mine"
    assert sorted(os.listdir(to)) == ["app.jar", "no classes", "old.jar", kept.name, "sparklog.jar"]
    (to / "app.jar").unlink()
    assert read(write_jar("app.jar")) is not None


def test_what_the_compiler_needs_is_said(
    cache: pathlib.Path, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "nowhere"))
    with pytest.raises(InvalidRequestError, match="set JAVA_HOME"):
        jar()
    (tmp_path / "jars").mkdir()
    (tmp_path / "jars/spark-core_2.13-4.3.0.jar").write_bytes(b"")
    monkeypatch.setenv("SPARK_HOME", str(tmp_path))
    with pytest.raises(InvalidRequestError, match=r"no scala-compiler\*\.jar"):
        jar()
    assert listed(cache) == []


@pytest.mark.deep
def test_a_source_that_does_not_compile(cache: pathlib.Path, tmp_path: pathlib.Path) -> None:
    wrong = [("sink/Wrong.scala", b"package sparklog.sink\nobject Wrong { val x: Int = none }\n")]
    with pytest.raises(InvalidRequestError, match=r"sink/Wrong\.scala:2: error: not found") as told:
        compile_into(tmp_path, wrong, Spark.installed())
    assert str(tmp_path) not in str(told.value).partition("Java 17 or later")[2]


@pytest.mark.deep  # compiles it, three times
def test_the_same_bytes_in_any_place_by_any_process(
    cache: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    """Two processes that are first at once; then another cache, with a Java that has no JDK's
    knowledge of Java 17."""
    code = "from sparklog.jvm import jar; jar.packaged_jar = lambda *_: None; print(jar.jar())"
    look = [sys.executable, "-c", code]
    users = [subprocess.Popen(look, stdout=subprocess.PIPE) for _ in range(2)]
    said = [user.communicate(timeout=500)[0] for user in users]
    path = pathlib.Path(said[0].decode().strip())
    assert said[0] == said[1]
    assert listed(cache) == [path.name]
    again = tmp_path / "again"
    again.mkdir()
    spark = Spark.installed()
    scala = sources(spark.version)
    compile_into(again, scala, spark, "-nowarn")
    versions = JarVersions(spark.version, sources=sources_digest(scala))
    write(again / "b.jar", again / "classes", versions)
    assert (again / "b.jar").read_bytes() == path.read_bytes()
    with zipfile.ZipFile(path) as whole:
        classes = [name for name in whole.namelist() if name.endswith(".class")]
        assert "sparklog/Version.class" in classes
        assert {whole.read(name)[7] for name in classes} == {61}  # of Java 17


@pytest.mark.deep
def test_a_runtime_without_the_jdk_compiles_too(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A JRE's `lib` has no ct.sym, which -release asks for."""
    real = pathlib.Path(java()).resolve()
    home = tmp_path / "jre"
    (home / "bin").mkdir(parents=True)
    (home / "bin" / "java").write_text(f'#!/bin/sh\nexec {real} "$@"\n')
    (home / "bin" / "java").chmod(0o755)
    (tmp_path / "without").mkdir()
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "nowhere"))
    with pytest.raises(InvalidRequestError, match=r"needs a Java .*; set JAVA_HOME to the"):
        compile_into(tmp_path / "without", [], Spark.installed())
    monkeypatch.setenv("JAVA_HOME", str(home))
    text = b"package sparklog\nobject Version { val plans: Int = 1 }\n"
    (tmp_path / "out").mkdir()
    compile_into(tmp_path / "out", [("Version.scala", text)], Spark.installed())
    assert (tmp_path / "out/classes/sparklog/Version.class").read_bytes()[7] == 61
