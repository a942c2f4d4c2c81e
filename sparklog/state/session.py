"""Setting up Spark sessions: the checkpoint manager, and what makes micro-batches quick."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from sparklog.errors import InvalidRequestError
from sparklog.jvm.gateway import NO_JAR, find
from sparklog.jvm.jar import jar
from sparklog.state.workers import workers_find_daemon

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MANAGER_KEY = "spark.sql.streaming.checkpointFileManagerClass"
MANAGER = "sparklog.checkpoint.LogCheckpointFileManager"
_JARS_KEY = "spark.jars"
_IN_SESSION = {
    MANAGER_KEY: MANAGER,
    # Each record has its CRC already; Spark's own would be a second file beside each.
    "spark.sql.streaming.checkpoint.fileChecksum.enabled": "false",
}
_AT_START = {"spark.python.unix.domain.socket.enabled": "true"}
_DAEMON = {"spark.python.daemon.module": "sparklog.state.daemon"}


def spark_conf(
    conf: Mapping[str, str] | None = None, *, daemon: bool | None = None
) -> dict[str, str]:
    """Return the settings for a session to be built, those of `conf` among them.

    for key, value in sparklog.spark_conf().items():
        builder = builder.config(key, value)

    Checkpoints are then kept as logs, and Python workers start and answer faster (Unix sockets, a
    daemon that has its imports). `spark.jars` of `conf` are kept beside sparklog's; other settings
    of `conf` win. Compiles the checkpoint manager at first use (about 10 s, once a Spark version).

    Args:
        daemon: let executors run sparklog's daemon of Python workers. It must be installed for
            their Python: what comes by --py-files is there too late, and no worker would start.
            By default it is used where it is known to be: with a local master, if the workers'
            Python finds it.
    Raises: InvalidRequestError if the manager can't be compiled.
    """
    given = dict(conf or {})
    jars = [name for name in given.pop(_JARS_KEY, "").split(",") if name]
    use_daemon = workers_find_daemon(given) if daemon is None else daemon
    at_start = {**_AT_START, **(_DAEMON if use_daemon else {})}
    return {**at_start, **_IN_SESSION, **given, _JARS_KEY: ",".join([*jars, jar()])}


def enable(spark: "SparkSession") -> None:
    """Let a running session keep its new queries' checkpoints as logs.

    What only holds from a session's start on (`spark_conf`) is left as it is. Queries that run
    already go on as they are; a checkpoint that Spark's own manager wrote is continued.

    Raises: InvalidRequestError on Spark Connect, whose server has to be started with the settings
        of `spark_conf`, and if the manager can't be compiled.
    """
    if not hasattr(spark, "_jsparkSession"):
        raise InvalidRequestError(
            "a Spark Connect session can't give its server classes of this kind: start the server "
            "with the settings that sparklog.spark_conf() gives (on the command line: sparklog "
            "spark-conf), and call sparklog.register(spark) here"
        )
    if find(spark) is NO_JAR:  # listJars doesn't tell: spark.jars of a second context aren't loaded
        spark.sql(f"ADD JAR '{jar()}'")
    for key, value in _IN_SESSION.items():
        spark.conf.set(key, value)
