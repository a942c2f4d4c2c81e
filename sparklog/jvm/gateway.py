"""Call the jar's code in the session's JVM, or return why that is not possible.

A jar comes to a session by `spark.jars`, the class path, `sparklog.enable` or ADD JAR. py4j's own
lookup (`jvm.package.Class`) uses the thread's class loader, which does not know all of them; the
loader that all sessions of an application share does. Source: SessionResourceLoader.addJar (Spark
4.3).
"""

import logging
import os
import uuid
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Self

from sparklog.jvm.jar_file import REMEDY, JarVersions
from sparklog.lru_cache import LruCache

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_LOGGER: Final = logging.getLogger("sparklog")
_SESSIONS_MAX: Final = 64  # per application; each start of a query creates a session
_QUERIES_MAX: Final = 1024
_OLD_CLASS: Final = "sparklog.checkpoint.LogCheckpointFileManager"  # in jars before Version
_OF_ALL_THREADS: Final = (
    "org.apache.spark.util.MutableURLClassLoader",
    "org.apache.spark.util.ChildFirstURLClassLoader",  # spark.driver.userClassPathFirst
)
_MISSING: Final = "java.lang.ClassNotFoundException"

NOWHERE: Final = ""


class AnswerFile:
    """An anonymous file in memory, to which the JVM writes a single answer.

    Long answers pass py4j 40 ms slower. The JVM gets `into`: the path of the file below /proc, and
    the target of the link at that path.
    """

    def __init__(self) -> None:
        self._file = -1
        self.into = NOWHERE
        if hasattr(os, "memfd_create"):  # missing in Python builds for old Linux versions
            name = f"sparklog-{uuid.uuid4().hex}"
            self._file = os.memfd_create(name)
            # The path alone is ambiguous: in another container the process id may be another
            # process's. The random name shows that the path leads to this file.
            self.into = f"/proc/{os.getpid()}/fd/{self._file} /memfd:{name} (deleted)"

    def taken(self, answer: bytes) -> bytes:
        """Return the JVM's answer from the file, or `answer` if py4j delivered the answer."""
        # The JVM returns the answer itself if it is short, or if it can't write to the file.
        if answer or self._file < 0:
            return answer
        size = os.fstat(self._file).st_size
        parts = []
        while size and (part := os.read(self._file, size)):
            parts.append(part)
            size -= len(part)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def close(self) -> None:
        """Release the memory. Idempotent."""
        if self._file >= 0:
            os.close(self._file)
            self._file, self.into = -1, NOWHERE

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


@dataclass(frozen=True, slots=True)
class Obstacle:
    """Why the JVM does not do the work. `level`: the level at which the reason is logged."""

    reason: str
    level: int = logging.INFO


JVM_CONF: Final = "spark.datasource.sparklog.jvm"
"""The session's conf with the default of option jvm."""
NOT_WANTED: Final = Obstacle("option jvm is false")
NOT_WANTED_THERE: Final = Obstacle(f"{JVM_CONF} is false")
CONNECT: Final = Obstacle("Spark Connect gives Python no access to its server's JVM")
NO_JAR: Final = Obstacle(
    "the session doesn't have sparklog's jar: call sparklog.enable(spark), or build the session "
    "with the settings of sparklog.spark_conf()"
)


class Gateway:
    """Calls the jar of a session, which has a version that this package supports. Thread-safe."""

    def __init__(self, load: Callable[[str], Any]) -> None:
        self.load = load  # loads a class by its name
        self._objects: dict[str, Any] = {}

    def call(self, name: str, method: str, *arguments: Any) -> Any:
        """Call a method of the named Scala object: `call("sparklog.sink.StageJob", ...)`.

        Py4j converts arguments and result: bytes for byte[], a Java object for other types.

        Raises:
            Exception: The method raised an exception; py4j's exception for it.

        Cost: a round trip to the JVM, three more at the first use of an object.
        """
        scala_object = self._objects.get(name)
        if scala_object is None:
            scala_object = self._objects[name] = _scala_object(self.load(name + "$"))
        return getattr(scala_object, method)(*arguments)

    def fetch(self, name: str, method: str, *arguments: Any) -> bytes:
        """Call a method that returns bytes and takes the answer's file as last parameter.

        Cost: 0.1 ms more than `call`. `call` takes 40 ms longer for more than 8 KB (`AnswerFile`).
        """
        with AnswerFile() as answer_file:
            return answer_file.taken(self.call(name, method, *arguments, answer_file.into))


def gateway(spark: "SparkSession", *, wanted: bool | None = None) -> Gateway | None:
    """Return the gateway to a session's jar, or None if Python has to do the work."""
    found = find_gateway(spark, wanted=wanted)
    return found if isinstance(found, Gateway) else None


def obstacle(spark: "SparkSession", *, wanted: bool | None = None) -> Obstacle | None:
    """Return why a session's jar can't be used, or None if `gateway` returns a gateway."""
    found = find_gateway(spark, wanted=wanted)
    return found if isinstance(found, Obstacle) else None


def find_gateway(spark: "SparkSession", *, wanted: bool | None = None) -> Gateway | Obstacle:
    """Return the gateway to a session's jar, or the reason why there is none.

    The result is cached for the session, as long as its SparkContext lives. A missing jar is cached
    until another jar is loaded, for example by `sparklog.enable`.

    Args:
        spark: The session. Each query has a separate session.
        wanted: The option jvm; by default the session's conf `JVM_CONF`.

    Cost: a round trip to the JVM, three without a jar; about ten at the first use.
    """
    if wanted is False:
        return NOT_WANTED
    session = getattr(spark, "_jsparkSession", None)
    if session is None:
        return CONNECT
    sessions = _known.setdefault(spark.sparkContext, LruCache(_SESSIONS_MAX))
    uuid = session.sessionUUID()
    known = sessions.get(uuid)
    if known is None or not known.holds():
        known = _look_up(session)
        sessions.put(uuid, known)
    return NOT_WANTED_THERE if wanted is None and not known.wanted else known.found


@dataclass(frozen=True, slots=True)
class _Known:
    found: Gateway | Obstacle
    loader: Any
    jars: int  # number of jars that the loader had
    wanted: bool  # the session's conf

    def holds(self) -> bool:
        """Return whether the result is still valid."""
        # A later jar can't replace a jar that was found: the class loader uses the first.
        return self.found is not NO_JAR or len(self.loader.getURLs()) == self.jars


# Keyed weakly by context: a stopped context and its successor are different objects.
_known: weakref.WeakKeyDictionary[Any, LruCache[str, _Known]] = weakref.WeakKeyDictionary()


def _look_up(session: Any) -> _Known:
    loader = session.sharedState().jarClassLoader()
    jars = len(loader.getURLs())
    wanted = session.conf().get(JVM_CONF, "true").strip().lower() != "false"
    return _Known(_found(session, loader.loadClass), loader, jars, wanted)


def load_jar(spark: "SparkSession", name: str) -> None:
    """Load a jar, given by path or URL, into a running session without a jar (`NO_JAR`).

    Executors get the jar with their next task.

    Source: SessionResourceLoader.addJar, SparkSubmit (Spark 4.3).
    """
    jvm: Any = spark.sparkContext._jvm
    url = name if ":" in name else jvm.java.io.File(name).toURI().toString()
    loader = spark._jsparkSession.sharedState().jarClassLoader()
    above = loader.getParent()
    # ADD JAR would load the jar for the calling thread only: other threads don't know Spark's class
    # loader for jars. The parent loader belongs to all threads, as with `spark.jars`.
    if above is not None and above.getClass().getName() in _OF_ALL_THREADS:
        spark.sparkContext._jsc.sc().addJar(url)
        above.addURL(jvm.java.net.URL(url))
    else:
        spark._jsparkSession.sessionState().resourceLoader().addJar(name)
    _known.pop(spark.sparkContext, None)


def _found(session: Any, load: Callable[[str], Any]) -> Gateway | Obstacle:
    found = _class(load, "sparklog.Version$")
    if found is None:
        old = _class(load, _OLD_CLASS)
        return NO_JAR if old is None else _mismatch("the jar is from an earlier sparklog")
    version, spark = _scala_object(found), session.version()
    versions = JarVersions(version.spark() or spark, version.sparklog() or "?", version.plans())
    reason = versions.mismatch(spark)
    return Gateway(load) if reason is None else _mismatch(reason)


def _class(load: Callable[[str], Any], name: str) -> Any:
    from py4j.protocol import Py4JJavaError  # pyspark is optional

    try:
        return load(name)
    except Py4JJavaError as e:
        if e.java_exception.getClass().getName() != _MISSING:
            raise
        return None


def _scala_object(loaded: Any) -> Any:
    # The Scala compiler stores an object in the static field MODULE$ of its class.
    return loaded.getField("MODULE$").get(None)


def _mismatch(reason: str) -> Obstacle:
    return Obstacle(
        f"sparklog's jar in spark.jars or on the class path can't be used: {reason}: {REMEDY}",
        logging.WARNING,
    )


def log_data_path(what: str, obstacle: Obstacle | None, *, query: str) -> None:
    """Log once per query whether the JVM or Python moves the bytes, and why Python does.

    Args:
        what: The work, such as "writes t".
        obstacle: Why the JVM does not do the work; None if the JVM does.
        query: The run id of the query, or any text.
    """
    key = f"{query} {what}"
    # A change is logged again, for example after `sparklog.enable` during a query.
    if LOGGED.get(key) == (obstacle is None):
        return
    LOGGED.put(key, obstacle is None)
    if obstacle is None:
        _LOGGER.info("%s: %s in the JVM", query, what)
    else:
        _LOGGER.log(obstacle.level, "%s: %s in Python: %s", query, what, obstacle.reason)


LOGGED: LruCache[str, bool] = LruCache(_QUERIES_MAX)
"""Messages that `log_data_path` has logged: query and work -> whether the JVM does it."""
