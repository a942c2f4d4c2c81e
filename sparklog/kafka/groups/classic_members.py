"""Members of a classic group, and the requests and responses of JoinGroup and SyncGroup."""

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Final

from sparklog.kafka.messages import ErrorCode

Protocols = tuple[tuple[str, bytes], ...]
"""(name, metadata) of each protocol that a member supports, in order of preference."""
NO_MEMBER: Final = ""
_OVERHEAD: Final = 512
"""Bytes of a member's objects besides its strings; rounded up from measurements."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinRequest:
    """A JoinGroup request, independent of its version.

    `needs_member_id`: a new dynamic member must join again with the member id that the first
    response assigns (version 4 and later). `may_skip`: the response can tell a static leader to
    skip the assignment (version 9 and later, KIP-814).
    """

    group: str
    protocol_type: str
    protocols: Protocols
    session_timeout_ms: int
    rebalance_timeout_ms: int
    member_id: str = NO_MEMBER
    instance_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    reason: str = "not provided"
    needs_member_id: bool = True
    may_skip: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinResponse:
    """The response to JoinGroup.

    `members` contains (member id, instance id, subscription metadata) of all members. The list is
    sent to the group's leader only, which computes the assignment.
    """

    error: ErrorCode = ErrorCode.none
    member_id: str = NO_MEMBER
    generation: int = -1
    protocol_type: str | None = None
    protocol_name: str | None = None
    leader: str = NO_MEMBER
    skip_assignment: bool = False
    members: tuple[tuple[str, str | None, bytes], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncRequest:
    """A SyncGroup request. `assignments`: (member id, assignment) pairs, sent by the leader."""

    group: str
    generation: int
    member_id: str
    instance_id: str | None = None
    protocol_type: str | None = None
    protocol_name: str | None = None
    assignments: tuple[tuple[str, bytes], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncResponse:
    error: ErrorCode = ErrorCode.none
    protocol_type: str | None = None
    protocol_name: str | None = None
    assignment: bytes = b""


@dataclass(frozen=True, slots=True, kw_only=True)
class LeavingMember:
    """A member in LeaveGroup, by its id; an operator may name only an instance id."""

    member_id: str = NO_MEMBER
    instance_id: str | None = None
    reason: str = "not provided"


@dataclass(slots=True)
class Member:
    """A member of a classic group.

    `answer_join` and `answer_sync` send the response to a JoinGroup or SyncGroup request that is
    waiting; None if no such request waits. `is_new` is True until the member's first JoinGroup
    request is answered.

    Source: ClassicGroupMember (Kafka 4.1).
    """

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    protocol_type: str
    protocols: Protocols
    assignment: bytes = b""
    answer_join: Callable[[JoinResponse], None] | None = None
    answer_sync: Callable[[SyncResponse], None] | None = None
    is_new: bool = False

    @property
    def lives_by_request(self) -> bool:
        """Whether a waiting request replaces heartbeats; not for a new member's first join."""
        if self.is_new:
            return False
        return self.answer_join is not None or self.answer_sync is not None

    @property
    def protocol_names(self) -> list[str]:
        return [name for name, _ in self.protocols]

    def metadata(self, protocol: str | None) -> bytes:
        """Return the member's metadata for a supported protocol."""
        return next(metadata for name, metadata in self.protocols if name == protocol)

    def vote(self, candidates: Collection[str]) -> str:
        """Return the member's preferred protocol among `candidates`."""
        return next(name for name, _ in self.protocols if name in candidates)


def weight(member_id: str, client_id: str, protocols: Protocols) -> int:
    """Return the memory of a member in bytes, without the assignment."""
    said = sum(len(name) + len(metadata) for name, metadata in protocols)
    return _OVERHEAD + len(member_id) + len(client_id) + said
