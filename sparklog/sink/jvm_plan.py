"""`TaskPlan` as JSON, for tasks in Spark's JVM (scala/sink/StagePlan.scala).

    {"version": 1, "label": "5f-12", "columns": ["key", "value"], "topic": "t", "home": "/log",
     "batch_bytes": 262144, "place": {"kind": "files", ...}, "directories": ["/log"],
     "configs": [{"codec": "lz4", "level": null, "max_message_bytes": .., "roll_bytes": ..,
                  "compact": false, "segment_bytes_min": ..}],
     "topics": [{"name": "t", "id": "..", "config": 0, "partitions": 4, "directory": 0}],
     "new_topic": {"config": 0, "partitions": 1, "directory": 0}, "faults": {"no_key": [..], ..}}

`topic`: the topic of all rows; null if each row names its topic. `topics`: topics that rows may go
to. `directory`: of all partitions, or a list with a directory per partition. `numbers`: the
existing partitions, if any are missing. `offline`: {partition: [error, text, path]}. `refused`:
[error, text] for a topic with an invalid compression level. `faults`: errors and texts of
`row_faults`.

Size: 2 KB, plus 100 bytes per further topic if rows name their topics.
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

_NEW: Final = "new"  # any name: the plan of a new topic does not depend on it


def to_json(plan: TaskPlan) -> bytes | None:
    """Return the plan for the JVM, if the log's files are local files of the machine.

    Cost: a few us, plus 1 us per partition of all topics if rows name their topics.
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
    """Topics as JSON. Shared configs and directories are listed once."""

    def __init__(self, staging: TaskStaging, framing: Framing) -> None:
        self._staging, self._framing = staging, framing
        self.directories: dict[str, int] = {}
        self.configs: list[Mapping[str, Any]] = []
        self._known: dict[str, int] = {}  # a config as JSON -> its index in `configs`

    def described(self, topic: TopicInfo) -> dict[str, Any]:
        own = dict(self._staging.jvm_topic(topic))
        places = own.pop("directories", None)
        fields: dict[str, Any] = {
            "name": topic.name,
            "id": topic.id,
            "config": self._config({**self._framed(topic.config), **own}),
            "partitions": topic.partitions,
        }
        numbers = sorted(topic.dirs)
        if numbers != list(range(topic.partitions)):
            fields["numbers"] = numbers
        if places is not None:
            indexes = [
                self.directories.setdefault(places[number], len(self.directories))
                for number in numbers
            ]
            fields["directory"] = indexes[0] if len(set(indexes)) == 1 else indexes
        if topic.offline:
            fields["offline"] = {
                number: [type(error).__name__, str(error), error.path]
                for number, error in topic.offline.items()
            }
        return fields

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
        except InvalidRequestError as error:  # raised later, if a row goes to this topic
            fields["refused"] = [type(error).__name__, str(error)]
        return fields

    def _config(self, fields: Mapping[str, Any]) -> int:
        text = json.dumps(fields)
        if text not in self._known:
            self._known[text] = len(self.configs)
            self.configs.append(fields)
        return self._known[text]
