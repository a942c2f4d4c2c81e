"""The groups with members, as published to other processes of the log."""

from sparklog.kafka.groups.classic_group import ClassicGroup, State
from sparklog.kafka.groups.classic_groups import ClassicGroups
from sparklog.kafka.groups.consumer_groups import ConsumerGroup, ConsumerGroups
from sparklog.kafka.groups.subscriptions import assigned_partitions
from sparklog.storage.group_members import GroupAtWork, Member

Fingerprint = tuple[tuple[str, str, int, int, tuple[str, ...]], ...]


def fingerprint_of(classic: ClassicGroups, modern: ConsumerGroups) -> Fingerprint:
    """Return a value that changes whenever a group or the members of a group change.

    Cost: a few fields per group.
    Includes the members' ids, because a restart of a static member changes only its id (KIP-345).
    """
    return (
        *((g.group, g.state, g.generation, 0, tuple(g.members)) for g in classic.groups.values()),
        *(
            (g.group, g.state, g.epoch, g.assignment_epoch, tuple(g.members))
            for g in modern.groups.values()
        ),
    )


def groups_at_work(classic: ClassicGroups, modern: ConsumerGroups) -> list[GroupAtWork]:
    """Return the groups that have members."""
    return [
        *(_classic(g) for g in classic.groups.values() if classic.is_active(g.group)),
        *(_modern(g) for g in modern.groups.values() if g.members),
    ]


def _classic(group: ClassicGroup) -> GroupAtWork:
    is_stable = group.state is State.STABLE
    members = tuple(
        Member(
            member_id=member.member_id,
            client_id=member.client_id,
            host=member.client_host,
            instance_id=member.instance_id or "",
            assigned=assigned_partitions(member.assignment) if is_stable else {},
        )
        for member in group.members.values()
    )
    return GroupAtWork(
        group=group.group, kind="Classic", state=str(group.state),
        assignor=(group.protocol_name or "") if is_stable else "",
        members=members, topics=group.topics,
    )  # fmt: skip


def _modern(group: ConsumerGroup) -> GroupAtWork:
    names = {topic_id: name for name, (topic_id, _) in group.read.items()}
    members = []
    for each in group.members.values():
        assigned: dict[str, list[int]] = {}
        for topic_id, partition in sorted(each.assigned, key=lambda one: one[1]):
            if topic_id in names:
                assigned.setdefault(names[topic_id], []).append(partition)
        members.append(
            Member(
                member_id=each.member_id,
                client_id=each.client_id,
                host=each.client_host,
                instance_id=each.instance_id or "",
                assigned=assigned,
            )
        )
    topics = frozenset[str]().union(*(group.topics_of(m) for m in group.members.values()))
    return GroupAtWork(
        group=group.group, kind="Consumer", state=group.state, assignor=group.assignor,
        members=tuple(members), topics=topics,
    )  # fmt: skip
