"""Active groups of Kafka clients and their members, as published by the endpoint that coordinates.

The log does not store members, because they exist only as long as their connections. The endpoint
that has the log's endpoint lease publishes them there, so that other processes do not change the
offsets of active groups.
"""

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

_MALFORMED = (KeyError, TypeError, ValueError, AttributeError)


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """A Kafka client that is a member of a consumer group.

    Attributes:
        member_id: The id that the group coordinator gave to the member.
        client_id: The client's `client.id`.
        host: The client's address.
        instance_id: The client's `group.instance.id`, or "".
        assigned: {topic: its partitions that are assigned to the member}.

    Examples:
        >>> member = sparklog.Member(member_id="c-1", assigned={"flights": [0, 1]})
        >>> member.partition_count
        2
    """

    member_id: str
    client_id: str = ""
    host: str = ""
    instance_id: str = ""
    assigned: Mapping[str, list[int]]

    @property
    def partition_count(self) -> int:
        """The number of assigned partitions."""
        return sum(map(len, self.assigned.values()))


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupAtWork:
    """A consumer group with members, as reported by the endpoint that coordinates the group.

    Attributes:
        group: The name of the group.
        kind: The group type: classic or consumer.
        state: The group state, as kafka-consumer-groups prints it.
        assignor: The name of the assignor.
        members: The members.
        topics: The topics that the members subscribe to, if known.

    Examples:
        >>> [group.state for group in log.groups_at_work().values()]  # no endpoint is running
        []
    """

    group: str
    kind: str
    state: str
    assignor: str
    members: tuple[Member, ...]
    topics: frozenset[str] | None = None

    def is_subscribed_to(self, topic: str) -> bool:
        """Return whether a member subscribes to a topic; True if the topics are unknown.

        Args:
            topic: The name of the topic.
        """
        return self.topics is None or topic in self.topics


def groups_to_json(groups: Iterable[GroupAtWork]) -> list[dict[str, Any]]:
    """Return the groups that an endpoint has published."""
    return [
        asdict(group) | {"topics": None if group.topics is None else sorted(group.topics)}
        for group in groups
    ]


def groups_from_json(published: Any) -> dict[str, GroupAtWork]:
    """Return {name: group} of an endpoint's published groups; empty if they are malformed."""
    try:
        return {group.group: group for group in map(_group, published or ())}
    except _MALFORMED:
        return {}


def _group(fields: Mapping[str, Any]) -> GroupAtWork:
    members = tuple(
        Member(**{name: member[name] for name in Member.__slots__}) for member in fields["members"]
    )
    topics = None if fields["topics"] is None else frozenset(fields["topics"])
    names = ("group", "kind", "state", "assignor")
    return GroupAtWork(**{name: fields[name] for name in names}, members=members, topics=topics)
