"""Options that the data source in the JVM passes to the Python data source that it wraps.

They are added to the user's options, which Spark passes in lower case. Users never set them, and
the docs do not list them. The micro-batch is added to its start offsets, beside the topics, and is
never stored: {"t": {"0": 5}, "#query": {"batch": 7}}.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from sparklog.storage.query_origin import ASIDE

_PREFIX: Final = "sparklog.jvm."
PLAN_VERSIONS: Final = _PREFIX + "plan"
"""Plan versions that the JVM supports, joined by commas; missing if the JVM does not read."""
QUERY_ID: Final = _PREFIX + "query"
RUN_ID: Final = _PREFIX + "run"
APP_ID: Final = _PREFIX + "app"
DESCRIPTION: Final = _PREFIX + "description"
BATCH_KEY: Final = f"{ASIDE}query"


def batch_from_json(start: Mapping[str, Mapping[str, int]]) -> int | None:
    """Return the micro-batch that starts at these offsets, if the JVM added it."""
    return start.get(BATCH_KEY, {}).get("batch")


@dataclass(frozen=True, slots=True)
class JvmCaller:
    """The Spark query for which the JVM calls the data source.

    Attributes:
        plan_versions: The versions of read plans that the JVM accepts.
        query_id: The id of a streaming query; None if unknown.
        run_id: The id of the query's run; "" if unknown.
        app_id: The id of the Spark application.
        description: Spark's description of the query's jobs, which contains the query's name.
    """

    plan_versions: frozenset[str] = frozenset()
    query_id: str | None = None
    run_id: str = ""
    app_id: str = ""
    description: str = ""

    @classmethod
    def parse(cls, values: Mapping[str, str]) -> "tuple[JvmCaller, dict[str, str]]":
        """Return the caller, and the options without the caller's."""
        # Option names of Spark's data sources are not case-sensitive.
        lowered = {name.lower(): text for name, text in values.items()}
        rest = {n: text for n, text in values.items() if not n.lower().startswith(_PREFIX)}
        versions = frozenset(filter(None, lowered.get(PLAN_VERSIONS, "").split(",")))
        caller = cls(
            versions, lowered.get(QUERY_ID), lowered.get(RUN_ID, ""), lowered.get(APP_ID, ""),
            lowered.get(DESCRIPTION, ""),
        )  # fmt: skip
        return caller, rest
