"""The versions of Spark that sparklog supports, and the error for older versions."""

import re
from typing import Final

from sparklog.errors import InvalidRequestError

SUPPORTED: Final = ((4, 0), (4, 1), (4, 2), (4, 3))
"""The versions with all of sparklog: data source, jar, log-backed checkpoints."""
SINK_ONLY: Final = (3, 5)
"""The version with SegmentSink in foreachBatch only: it has no Python data sources."""

JARS: Final = ((4, 0), (4, 1), (4, 2))
"""The versions with a jar of their own. A jar also serves later versions, up to the next jar's."""


def spark_version(text: str) -> tuple[int, int]:
    """Return the major and the minor version of Spark: (4, 1) for "4.1.4"."""
    found = re.match(r"(\d+)\.(\d+)", text)
    return (int(found[1]), int(found[2])) if found else (0, 0)


def jar_version(spark: str) -> tuple[int, int]:
    """Return the version of Spark whose jar works with `spark`: (4, 2) for "4.3.0".

    A version that sparklog does not know needs a jar of its own.
    """
    version = spark_version(spark)
    older = [each for each in JARS if each <= version]
    return older[-1] if older and version in SUPPORTED else version


def check_spark(version: str, what: str, *, oldest: tuple[int, int] = SUPPORTED[0]) -> None:
    """Check that a version of Spark is not too old for `what`, such as 'format("sparklog")'.

    A version that is newer than the supported ones is accepted, because it may work.

    Raises:
        InvalidRequestError: The version is older than `oldest`.
    """
    if spark_version(version) >= oldest:
        return
    names = [f"{major}.{minor}" for major, minor in SUPPORTED]
    older = f"{SINK_ONLY[0]}.{SINK_ONLY[1]}"
    raise InvalidRequestError(
        f"{what} doesn't work with Spark {version}. The supported versions are "
        f"{', '.join(names[:-1])} and {names[-1]} (pip install 'pyspark>={names[0]}.0'). With "
        f"Spark {older}, only sparklog.sink.SegmentSink in foreachBatch, sparklog.open and the "
        "commands work"
    )
