"""A group's clients for tests of the state machine: a manual clock, and answers as they come."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from sparklog.clock import ManualClock
from sparklog.kafka.groups.classic_group import ClassicGroup, State
from sparklog.kafka.groups.classic_groups import ClassicGroups, Limits
from sparklog.kafka.groups.classic_members import (
    JoinRequest,
    JoinResponse,
    LeavingMember,
    SyncRequest,
    SyncResponse,
)
from sparklog.kafka.messages import ErrorCode
from sparklog.kafka.timers import Timers

T = TypeVar("T")
DELAY_MS = 3_000
SESSION_MS = 10_000
REBALANCE_MS = 60_000


@dataclass
class Groups:
    """The state machine, its clock, and a client's requests in short."""

    limits: Limits = field(default_factory=Limits)
    clock: ManualClock = field(default_factory=lambda: ManualClock(1_000_000))
    emptied: list[tuple[str, frozenset[str] | None]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.timers = Timers(self.clock, lambda: None)
        self.machine = ClassicGroups(
            self.limits, self.clock, self.timers,
            emptied=lambda group, topics: self.emptied.append((group.group, topics)),
        )  # fmt: skip

    @property
    def group(self) -> ClassicGroup:
        return self.machine.groups["g"]

    @property
    def state(self) -> State:
        return self.group.state

    def join(self, member_id: str = "", **given: Any) -> list[JoinResponse]:
        """Join; the list gets the answer, once it comes."""
        protocols = given.pop("protocols", ["range"])
        fields: dict[str, Any] = {
            "group": "g",
            "protocol_type": "consumer",
            "protocols": tuple((p, b"") if isinstance(p, str) else p for p in protocols),
            "session_timeout_ms": SESSION_MS,
            "rebalance_timeout_ms": REBALANCE_MS,
            "member_id": member_id,
            "client_id": "c",
            "needs_member_id": False,
        }
        answers: list[JoinResponse] = []
        self.machine.join(JoinRequest(**(fields | given)), answers.append)
        return answers

    def sync(
        self, joined: JoinResponse, assignments: Sequence[tuple[str, bytes]] = (), **given: Any
    ) -> list[SyncResponse]:
        """Sync in the generation that was joined."""
        fields: dict[str, Any] = {
            "group": "g",
            "generation": joined.generation,
            "member_id": joined.member_id,
            "assignments": tuple(assignments),
        }
        answers: list[SyncResponse] = []
        self.machine.sync(SyncRequest(**(fields | given)), answers.append)
        return answers

    def heartbeat(
        self, joined: JoinResponse, *, instance: str | None = None, generation: int | None = None
    ) -> ErrorCode:
        at = joined.generation if generation is None else generation
        return self.machine.heartbeat("g", joined.member_id, instance, at)

    def leave(self, *members: str | LeavingMember) -> list[ErrorCode]:
        leaving = [
            m if isinstance(m, LeavingMember) else LeavingMember(member_id=m) for m in members
        ]
        return self.machine.leave("g", leaving)[1]

    def advance(self, ms: int) -> None:
        """Let time pass; what is due is carried out when it is."""
        end = self.clock.now_ms + ms
        while (due := self.timers.next_ms) is not None and due <= end:
            self.clock.now_ms = max(int(due), self.clock.now_ms)
            self.timers.expire()
        self.clock.now_ms = end

    def stable(self, members: int = 1, **given: Any) -> list[JoinResponse]:
        """Bring a group of so many members to its first generation, assigned."""
        waiting = [self.join(**given) for _ in range(members)]
        self.advance(2 * DELAY_MS if members > 1 else DELAY_MS)
        return self.assigned([one(answers) for answers in waiting])

    def static_pair(self, **given: Any) -> tuple[JoinResponse, JoinResponse]:
        """Bring static members "leader" and "follower" to their first generation, assigned."""
        waiting = [self.join(instance_id=name, **given) for name in ("leader", "follower")]
        self.advance(2 * DELAY_MS)
        leader, follower = self.assigned([one(answers) for answers in waiting])
        return leader, follower

    def assigned(self, joined: Sequence[JoinResponse]) -> list[JoinResponse]:
        """Let the leader of a generation assign each member its own id."""
        leader = next(j for j in joined if j.leader == j.member_id)
        everybody = [(j.member_id, j.member_id.encode()) for j in joined]
        followers = [(self.sync(j), j) for j in joined if j is not leader]
        assert one(self.sync(leader, everybody)).error is ErrorCode.none
        for answers, member in followers:
            assert one(answers).assignment == member.member_id.encode()
        assert self.state is State.STABLE
        return list(joined)


def one(answers: list[T]) -> T:
    """Return the only answer; it has come."""
    (answer,) = answers
    return answer


