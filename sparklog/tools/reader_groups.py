"""A log's readers as consumer groups, and the formats of kafka-consumer-groups.

A streaming query appears as a stable group with a single member, the query's host. A Kafka endpoint
of the log shows queries to Kafka's own tool in the same way. Source: ConsumerGroupCommand, CsvUtils
(Kafka 4.1).
"""

import csv
import io
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import timedelta
from typing import Any, Final

from sparklog.common import TopicPartition
from sparklog.errors import InvalidRequestError
from sparklog.log.log import Log, home_of, view_of
from sparklog.log.reader_reset import ResetPlan
from sparklog.storage.group_members import GroupAtWork, Member
from sparklog.storage.groups import GROUP, Reader

STATES: Final = ("Empty", "PreparingRebalance", "CompletingRebalance", "Stable", "Assigning",
                 "Reconciling", "Dead")  # fmt: skip
TYPES: Final = ("Classic", "Consumer")
Offsets = Mapping[str, Mapping[int, int]]
_DURATION: Final = re.compile(
    r"([+-]?)P(?:([+-]?\d+)D)?"
    r"(?:T(?:([+-]?\d+)H)?(?:([+-]?\d+)M)?(?:([+-]?\d+(?:[.,]\d{0,9})?)S)?)?",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReaderOffset:
    """A group's position in a partition, and the member to which the partition is assigned.

    Attributes:
        leader_epoch: The leader epoch of the position, or None for an unknown epoch.
        offset: The position, or None without a committed offset.
        end: The high watermark, or None for a partition that does not exist.
        member: The member, or None for a partition without a member.
    """

    topic: str
    partition: int
    leader_epoch: int | None
    offset: int | None
    end: int | None
    member: Member | None

    @property
    def lag(self) -> int | None:
        """Number of offsets between the position and the end."""
        return None if self.offset is None or self.end is None else self.end - self.offset


@dataclass(frozen=True, slots=True, kw_only=True)
class ReaderGroup:
    """A consumer group or streaming query, in the representation of Kafka's tools."""

    group: str
    kind: str
    state: str
    assignor: str
    members: tuple[Member, ...]
    offsets: tuple[ReaderOffset, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as a JSON document, with the lag of each position."""
        found = asdict(self)
        for row, each in zip(found["offsets"], self.offsets, strict=True):
            row |= {"lag": each.lag, "member": each.member and each.member.member_id}
        return found


def describe_groups(log: Log, names: Sequence[str] | None = None) -> dict[str, ReaderGroup]:
    """Return {name: group} of all groups of a log, or of the existing groups in `names`.

    Raises:
        DataCorruptionError: A group in `names` is damaged.
    """
    at_work = log.groups_at_work()
    groups = home_of(log).groups
    if names is None:
        known = {reader.group: reader for reader in groups.readers().groups}
        names = sorted({*known, *at_work})
    else:
        named = {name: groups.reader(name) for name in names}
        known = {name: reader for name, reader in named.items() if reader is not None}
    found = {}
    for name in names:
        if name in known or name in at_work:
            found[name] = _described(log, name, known.get(name), at_work.get(name))
    return found


def _described(
    log: Log, name: str, reader: Reader | None, at_work: GroupAtWork | None
) -> ReaderGroup:
    committed = {} if reader is None else reader.offsets
    members: tuple[Member, ...] = () if at_work is None else at_work.members
    kind, state, assignor = "Classic", "Empty", ""
    if reader is not None and reader.kind != GROUP:
        state, assignor, members = "Stable", "streaming query", (_of_query(reader),)
    elif at_work is not None:
        kind, state, assignor = at_work.kind, at_work.state, at_work.assignor
    owners = {
        TopicPartition(topic, p): member
        for member in members for topic, by in member.assigned.items() for p in by
    }  # fmt: skip
    infos = log.topics()
    keys = sorted({*committed, *owners})
    held = [k for k in keys if k.topic in infos and k.partition in infos[k.topic].dirs]
    spans = view_of(log).spans(held)
    rows = []
    for key in keys:
        at = committed.get(key)
        epoch = None if at is None else at.leader_epoch if at.origin is None else at.origin.epoch
        rows.append(
            ReaderOffset(
                topic=key.topic, partition=key.partition, leader_epoch=epoch,
                offset=None if at is None else at.offset,
                end=spans[key][1] if key in spans else None, member=owners.get(key),
            )
        )  # fmt: skip
    return ReaderGroup(
        group=name, kind=kind, state=state, assignor=assignor, members=members, offsets=tuple(rows)
    )


def _of_query(reader: Reader) -> Member:
    owned: dict[str, list[int]] = {}
    for topic, partition in sorted(reader.offsets):
        owned.setdefault(topic, []).append(partition)
    return Member(
        member_id=f"streaming query {reader.group}", client_id=reader.app, host=f"/{reader.host}",
        assigned=owned,
    )  # fmt: skip


# --- arguments of resets --------------------------------------------------------------------------


def parse_topics(given: Iterable[str]) -> dict[str, list[int] | None]:
    """Parse topics, or "topic:0,1", as {topic: partitions, or None for all}.

    Raises:
        InvalidRequestError: A text has another form.
    """
    found: dict[str, list[int] | None] = {}
    for text in given:
        topic, *rest = text.split(":")
        if len(rest) > 1 or rest == [""]:
            raise InvalidRequestError(
                f"Invalid topic arg '{text}', expected topic name and partitions: t, or t:0,1"
            )
        known = found.get(topic, [])
        if not rest or known is None:
            found[topic] = None
            continue
        for number in rest[0].split(","):
            if not (number.isascii() and number.isdecimal() and len(number) < 20):
                raise InvalidRequestError(
                    f"Invalid partition '{number[:100]}' specified in topic arg '{text}'"
                )
            known.append(int(number))
        found[topic] = known
    return found


def parse_duration(text: str) -> timedelta:
    """Parse an ISO duration of the form PnDTnHnMnS, as Java's Duration does.

    Raises:
        InvalidRequestError: The text has another form, or the duration is too long.
    """
    match = _DURATION.fullmatch(text)
    if match is None or not any(match.groups()[1:]) or text[-1] in "tT":
        raise InvalidRequestError(
            f"duration {text!r} must have the form PnDTnHnMnS, such as PT1H or P1DT12H"
        )
    sign, days, hours, minutes, seconds = match.groups()
    try:
        found = timedelta(
            days=int(days or 0), hours=int(hours or 0), minutes=int(minutes or 0),
            seconds=float((seconds or "0").replace(",", ".")),
        )  # fmt: skip
    except OverflowError:
        raise InvalidRequestError(f"duration {text!r} is longer than any log") from None
    return -found if sign == "-" else found


def parse_plans(text: str, groups: Sequence[str]) -> dict[str, Offsets]:
    """Parse {group: offsets} from CSV.

    Lines are "group,topic,partition,offset", or "topic,partition,offset" if a single group is
    given.

    Raises:
        InvalidRequestError: A line has another form.
    """
    try:
        rows = [row for row in csv.reader(io.StringIO(text)) if row]
    except csv.Error as error:
        raise InvalidRequestError(f"the plan is not CSV: {error}") from None
    found: dict[str, dict[str, dict[int, int]]] = {}
    for at, row in enumerate(rows, 1):
        given_group = groups if len(row) == 3 and len(groups) == 1 else []
        try:
            group, topic, partition, offset = [*given_group, *row]
            found.setdefault(group, {}).setdefault(topic, {})[int(partition)] = int(offset)
        except ValueError:
            wanted = "topic,partition,offset (of one --group) or group,topic,partition,offset"
            given = ",".join(row)[:200]
            raise InvalidRequestError(
                f"plan, row {at}: {given!r} must have the form {wanted}"
            ) from None
    return dict(found)


def plans_csv(plans: Iterable[ResetPlan], *, with_group: bool) -> str:
    """Return plans as CSV, a line per partition, readable by `parse_plans` and Kafka's tool."""
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(
        [*[plan.group] * with_group, each.topic, each.partition, each.offset]
        for plan in plans for each in plan.offsets
    )  # fmt: skip
    return text.getvalue()
