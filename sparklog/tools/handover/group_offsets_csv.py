"""The file of registered readers for `kafka-consumer-groups --reset-offsets --from-file`.

A broker stores committed offsets in a topic of its own, which it creates when a group first
commits. So the groups of a log are handed over with this tool, while the broker runs. Streaming
queries have their offsets in their checkpoints and are left out. Source: ConsumerGroupCommand,
CsvUtils (Kafka 4.1).
"""

import csv
import io
import shlex
from collections.abc import Mapping, Sequence

from sparklog.storage.groups import Reader
from sparklog.tools.handover.inventory import HandedTopic

GROUP_KIND = "group"


def groups_to_reset(
    readers: Sequence[Reader], topics: Sequence[HandedTopic]
) -> dict[str, dict[tuple[str, int], int]]:
    """Return {group: {(topic, partition): offset}}, within the broker's offsets.

    A position below the log start becomes the log start: otherwise Kafka's tool rejects it as out
    of range.
    """
    spans: Mapping[tuple[str, int], tuple[int, int]] = {
        (topic.name, number): (held.start, held.end)
        for topic in topics
        for number, held in topic.partitions.items()
    }
    found: dict[str, dict[tuple[str, int], int]] = {}
    for reader in sorted(readers, key=lambda each: each.group):
        held = {
            (key.topic, key.partition): min(max(at.offset, spans[key][0]), spans[key][1])
            for key, at in sorted(reader.offsets.items())
            if key in spans
        }
        if reader.kind == GROUP_KIND and held:
            found[reader.group] = held
    return found


def csv_text(groups: Mapping[str, Mapping[tuple[str, int], int]]) -> str:
    """Return the contents of the file: lines of GROUP,TOPIC,PARTITION,OFFSET.

    If there is only a single group, lines do not contain the group.
    """
    out = io.StringIO()
    rows = csv.writer(out, lineterminator="\n")
    for group, offsets in groups.items():
        for (topic, partition), offset in offsets.items():
            row = [topic, partition, offset]
            rows.writerow(row if len(groups) == 1 else [group, *row])
    return out.getvalue()


def reset_command(groups: Sequence[str], path: str, bootstrap: str) -> str:
    """Return the command that commits the file's offsets."""
    named = " ".join(f"--group {shlex.quote(group)}" for group in groups)
    return (
        f"kafka-consumer-groups.sh --bootstrap-server {bootstrap} --reset-offsets {named} "
        f"--from-file {shlex.quote(path)} --execute"
    )
