"""What the data source in the JVM says to the Python one that it wraps: options of its own.

They come among the user's options, which Spark hands over in lower case, and are none of these: no
user sets them, no docs name them. What belongs to a micro-batch comes beside its topics in the
offsets where it begins, and is never kept: {"t": {"0": 5}, "#query": {"batch": 7}}.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from sparklog.storage.source_offsets import ASIDE

_PREFIX: Final = "sparklog.jvm."
PLAN_VERSIONS: Final = _PREFIX + "plan"
"""The versions of plans that the JVM reads, joined by commas; missing where it reads nothing."""
QUERY_ID: Final = _PREFIX + "query"
RUN_ID: Final = _PREFIX + "run"
APP_ID: Final = _PREFIX + "app"
DESCRIPTION: Final = _PREFIX + "description"
BATCH_KEY: Final = f"{ASIDE}query"


def batch_from_json(start: Mapping[str, Mapping[str, int]]) -> int | None:
    """Return the micro-batch that begins at these offsets; None where nobody said."""
    return start.get(BATCH_KEY, {}).get("batch")


@dataclass(frozen=True, slots=True)
class JvmCaller:
    """The Spark query for which the JVM calls the data source.

    `query_id`, `run_id`: the ids of a streaming query, None or "" if they are unknown.
    `description`: Spark's description of the query's jobs, which contains the query's name.
    """

    plan_versions: frozenset[str] = frozenset()
    query_id: str | None = None
    run_id: str = ""
    app_id: str = ""
    description: str = ""

    @classmethod
    def parse(cls, values: Mapping[str, str]) -> "tuple[JvmCaller, dict[str, str]]":
        """Return who asks, and the options without theirs."""
        said = {name.lower(): text for name, text in values.items()}
        rest = {n: text for n, text in values.items() if not n.lower().startswith(_PREFIX)}
        versions = frozenset(filter(None, said.get(PLAN_VERSIONS, "").split(",")))
        caller = cls(
            versions, said.get(QUERY_ID), said.get(RUN_ID, ""), said.get(APP_ID, ""),
            said.get(DESCRIPTION, ""),
        )  # fmt: skip
        return caller, rest
