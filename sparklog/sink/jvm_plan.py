"""`TaskPlan` as JSON: what tasks in Spark's JVM stage rows by (scala/sink/StagePlan.scala).

    {"version": 1, "label": "5f-12", "columns": ["key", "value"], "topic": "t", "home": "/log",
     "batch_bytes": 262144, "place": {"kind": "files", ...}, "directories": ["/log"],
     "configs": [{"codec": "lz4", "level": null, "max_message_bytes": .., "roll_bytes": ..,
                  "compact": false, "segment_bytes_min": ..}],
     "topics": [{"name": "t", "id": "..", "config": 0, "partitions": 4, "directory": 0}],
     "new_topic": {"config": 0, "partitions": 1, "directory": 0}, "faults": {"no_key": [..], ..}}

`topic`: of all rows; null: each row's. Topics are those that rows may go to. `directory`: of all
partitions, or a list of each one's; `numbers`: the partitions that there are, if any are missing.
`offline`: {partition: [error, text, path]}. `refused`: [error, text] of a topic that can't be
framed as it is asked for. `faults`: errors and texts of `row_faults`.
Size: 2 KB, and 100 bytes for each further topic, where rows name theirs.
"""

import json
from collections.abc import Mapping
from typing import Any, Final

from sparklog.config import TopicConfig
from sparklog.errors import InvalidRequestError
from sparklog.format.compression import check_level
from sparklog.jvm.plans import PLAN_VERSION
from sparklog.sink.task import TaskPlan
from sparklog.storage.row_faults import ROW_FAULTS
from sparklog.storage.staging import Framing, TaskStaging
from sparklog.storage.view import TopicInfo

_NEW: Final = "new"  # any name: what is planned for a new topic depends on none


def to_json(plan: TaskPlan) -> bytes | None:
    """Return the plan for the JVM; None: it can't stage there, whose files aren't the machine's.

    Cost: some us, but for rows that name their topics: 1 us for each partition that there is.
    """
    place = plan.staging.jvm_place()
    if place is None:
        return None
    topics = _Topics(plan.staging, plan.framing)
    named = plan.topics.values() if plan.topic is None else [plan.topics[plan.topic]]
    listed = [topics.described(topic) for topic in named]
    new = None
    if plan.new_topic is not None and plan.topic is None:
        partitions, config = plan.new_topic
        made = topics.described(plan.staging.planned_topic(_NEW, partitions, config))
        new = {name: value for name, value in made.items() if name not in ("name", "id")}
    fields = {
        "version": PLAN_VERSION,
        "label": plan.label,
        "columns": plan.columns,
        "topic": plan.topic,
        "home": plan.staging.home,
        "batch_bytes": plan.framing.batch_size,
        "place": place,
        "directories": list(topics.directories),
        "configs": topics.configs,
        "topics": listed,
        "new_topic": new,
        "faults": {name: [fault.kind.__name__, fault.text] for name, fault in ROW_FAULTS.items()},
    }
    return json.dumps(fields).encode()


class _Topics:
    """Topics as JSON; what many of them share is said once."""

    def __init__(self, staging: TaskStaging, framing: Framing) -> None:
        self._staging, self._framing = staging, framing
        self.directories: dict[str, int] = {}
        self.configs: list[Mapping[str, Any]] = []
        self._known: dict[str, int] = {}  # a config as text -> its place

    def described(self, topic: TopicInfo) -> dict[str, Any]:
        own = dict(self._staging.jvm_topic(topic))
        places = own.pop("directories", None)
        found: dict[str, Any] = {
            "name": topic.name,
            "id": topic.id,
            "config": self._config({**self._framed(topic.config), **own}),
            "partitions": topic.partitions,
        }
        numbers = sorted(topic.dirs)
        if numbers != list(range(topic.partitions)):
            found["numbers"] = numbers
        if places is not None:
            each = [
                self.directories.setdefault(places[number], len(self.directories))
                for number in numbers
            ]
            found["directory"] = each[0] if len(set(each)) == 1 else each
        if topic.offline:
            found["offline"] = {
                number: [type(error).__name__, str(error), error.path]
                for number, error in topic.offline.items()
            }
        return found

    def _framed(self, config: TopicConfig) -> dict[str, Any]:
        codec, level = self._framing.compression(config)
        fields: dict[str, Any] = {
            "codec": codec.name.lower(),
            "level": level,
            "max_message_bytes": config.max_message_bytes,
            "roll_bytes": config.roll_bytes,
            "compact": config.compact,
        }
        try:
            check_level(codec, level)
        except InvalidRequestError as error:  # perhaps no row goes to such a topic
            fields["refused"] = [type(error).__name__, str(error)]
        return fields

    def _config(self, fields: Mapping[str, Any]) -> int:
        text = json.dumps(fields)
        if text not in self._known:
            self._known[text] = len(self.configs)
            self.configs.append(fields)
        return self._known[text]
