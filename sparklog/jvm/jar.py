"""The jar for Spark's JVM: part of the package, compiled at first use, or given.

Spark's classes change with minor versions, so a wheel of sparklog contains several jars. For a
build of Spark that none of them serves, and in a checkout, the jar is compiled. Compiled jars are
stored by Spark's version and a digest of the sources. A given jar (SPARKLOG_JAR, `spark.jars`)
comes first.
"""

import contextlib
import errno
import fcntl
import hashlib
import os
import pathlib
import re
import shutil
import tempfile
import time
from collections.abc import Iterable, Iterator
from typing import Final

from sparklog.errors import InvalidRequestError
from sparklog.fs import LOCAL
from sparklog.jvm.compiler import TIMEOUT_S, Spark, compile_into, sources, sources_digest
from sparklog.jvm.jar_file import REMEDY, JarVersions, given_among, local_path, read, write
from sparklog.jvm.packaged_jar import packaged_jar

CACHE_VARIABLE: Final = "SPARKLOG_CACHE"
JAR_VARIABLE: Final = "SPARKLOG_JAR"
_LOCK: Final = ".lock"
_COMPILING: Final = ".compiling-"
WAIT_S: Final = TIMEOUT_S + 60


def jar(given: Iterable[str] = ()) -> str:
    """Return the path of the jar for the installed Spark.

    The jar is the sparklog jar among `given` (paths, URLs), else $SPARKLOG_JAR, else the package's
    jar for that Spark, else a compiled jar, stored below $SPARKLOG_CACHE, else
    $XDG_CACHE_HOME/sparklog, else ~/.cache/sparklog. If several processes need the jar at once, a
    single process compiles and the others wait.

    Cost: a few ms; about 10 s to compile a jar.

    Raises:
        InvalidRequestError: The given jar isn't for this sparklog and Spark, or there is no Java,
            no Spark, or no writable directory.
    """
    found = given_among(given) or os.environ.get(JAR_VARIABLE)
    if found:
        return _checked(found)
    return _own()


def _own() -> str:
    """Return the package's jar for the installed Spark, else a compiled jar."""
    spark = Spark.installed()
    scala = sources(spark.version)
    versions = JarVersions(spark.version, sources=sources_digest(scala))
    packaged = None
    if re.fullmatch(r"[\d.]+", spark.version):  # no vendor's build, whose classes may differ
        packaged = packaged_jar(spark.version, versions.sources)
    return packaged or _compiled(spark, scala, versions)


def _compiled(spark: Spark, scala: list[tuple[str, bytes]], versions: JarVersions) -> str:
    digest = hashlib.sha256(versions.manifest()).hexdigest()[:16]
    path = _cache() / f"sparklog-jvm-{spark.version}-{digest}.jar"
    if not _is_whole(path):
        _build(path, scala, spark, versions)
    return str(path)


def write_jar(target: str) -> str:
    """Write the jar to a file or directory, for hosts that can't compile. Return the path.

    Raises:
        InvalidRequestError: There is no usable jar (see `jar`), or the target can't be written, or
            the target is a file that is not a sparklog jar.
    """
    built = _to_write()
    path = pathlib.Path(target).absolute()
    if path.is_dir() or target.endswith(os.sep):
        path /= os.path.basename(built)
    try:
        if path.exists():
            if path.samefile(built):
                return str(path)
            if read(path) is None:
                raise InvalidRequestError(
                    f"{path} exists and isn't a complete jar of sparklog: remove it, or name "
                    "another file"
                )
        # In the target's directory, because a rename is atomic only within a file system.
        with tempfile.TemporaryDirectory(dir=path.parent, prefix=f".{path.name}-") as directory:
            copy = pathlib.Path(directory, "copy.jar")
            shutil.copyfile(local_path(built), copy)
            _move(copy, path)
    except OSError as e:
        raise InvalidRequestError(
            f"the jar can't be written to {path} ({e.strerror}): name a writable file or directory"
        ) from e
    return str(path)


def _to_write() -> str:
    """Return $SPARKLOG_JAR if usable, otherwise the jar of `_own`."""
    # The error about an unusable $SPARKLOG_JAR advises to write a new jar, so it must not prevent
    # exactly that.
    if os.environ.get(JAR_VARIABLE):
        with contextlib.suppress(InvalidRequestError):
            given = jar()
            if os.path.isfile(local_path(given)):
                return given
    return _own()


def _checked(name: str) -> str:
    path = local_path(name)
    # Not a file of this host (hdfs://, or local: on each executor): the session checks it later.
    if "://" in path or path.startswith("local:"):
        return name
    try:
        versions = read(path)
    except OSError as e:
        raise InvalidRequestError(
            f"sparklog's jar {path} can't be read ({e.strerror}): name an existing jar, or {REMEDY}"
        ) from e
    if versions is None:
        raise InvalidRequestError(f"{path} isn't a complete jar of sparklog: {REMEDY}")
    spark = None
    with contextlib.suppress(InvalidRequestError):  # no Spark here that would start a session
        spark = Spark.installed().version
    reason = versions.mismatch(spark)
    if reason is not None:
        raise InvalidRequestError(f"{path} can't be used: {reason}: {REMEDY}")
    return name if name != path else os.path.abspath(path)


def _is_whole(path: pathlib.Path) -> bool:
    try:
        return read(path) is not None
    except OSError:
        return False


def _build(
    path: pathlib.Path, scala: list[tuple[str, bytes]], spark: Spark, versions: JarVersions
) -> None:
    home = path.parent
    try:
        with _alone(home) as alone:
            if _is_whole(path):  # another process was quicker
                return
            if alone:
                for left in home.glob(f"{_COMPILING}*"):  # by a process that was killed
                    shutil.rmtree(left, ignore_errors=True)
            with tempfile.TemporaryDirectory(dir=home, prefix=_COMPILING) as directory:
                compile_into(pathlib.Path(directory), scala, spark, "-nowarn")
                built = pathlib.Path(directory, "built.jar")
                write(built, pathlib.Path(directory, "classes"), versions)
                _move(built, path)
    except OSError as e:
        raise _unwritable(home, e) from e


@contextlib.contextmanager
def _alone(home: pathlib.Path) -> Iterator[bool]:
    """Wait until no other process compiles; yield True if this process has acquired the lock."""
    # Without the lock (the file system has no locks, or the other process hangs) the caller
    # compiles anyway: each process compiles in a separate directory, and renames the jar last.
    with (home / _LOCK).open("wb") as file:
        yield _locked(file.fileno())


def _locked(file: int) -> bool:
    until = time.monotonic() + WAIT_S
    while time.monotonic() < until:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            time.sleep(0.1)
        except OSError:
            return False
        else:
            return True
    return False


def _move(built: pathlib.Path, path: pathlib.Path) -> None:
    # A rename, not a copy: a JVM with the old file open keeps the old file. The sync comes first,
    # because a power cut could otherwise leave an empty file under the final name.
    with built.open("rb") as file:
        os.fsync(file.fileno())
    LOCAL.rename(str(built), str(path))


def _cache() -> pathlib.Path:
    named = os.environ.get(CACHE_VARIABLE)
    base = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    home = pathlib.Path(named or f"{base}/sparklog").absolute()
    try:
        if not named and base.startswith("~"):  # a user without an entry, as in containers
            raise FileNotFoundError(errno.ENOENT, "the user has no home directory")
        home.mkdir(parents=True, exist_ok=True)
    except OSError as e:
        raise _unwritable(home, e) from e
    return home


def _unwritable(home: pathlib.Path, e: OSError) -> InvalidRequestError:
    return InvalidRequestError(
        f"the compiled jar can't be stored in {home} ({e.strerror}): set {CACHE_VARIABLE} to a "
        f"writable directory, or {JAR_VARIABLE} to a jar made by "
        "`sparklog doctor --spark-conf --jar FILE` elsewhere"
    )
