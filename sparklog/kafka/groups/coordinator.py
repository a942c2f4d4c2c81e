"""Which endpoint coordinates the log's groups, and what it keeps going while it is this one.

Two endpoints of one log would each hand all partitions to their own members. So one of them holds
the log's endpoint lease, and the others send clients to its address (FindCoordinator), which they
read in the lease. It is taken when a client first asks for a coordinator, and kept until the
endpoint ends; when its holder dies, whichever is asked next takes it, and the members join anew.

A log that has no place for a lease (an archive, a broker's directory, a place that may not be
written to) has as many coordinators as endpoints; a log line says so once.
"""

import asyncio
import logging
import socket
import threading
from collections.abc import Callable, Coroutine
from typing import Final

from sparklog.clock import monotonic_ms
from sparklog.errors import InvalidRequestError, SparklogError
from sparklog.kafka.broker import Broker, Node
from sparklog.kafka.groups.active_groups import Fingerprint, fingerprint_of, groups_at_work
from sparklog.kafka.groups.classic_group import ClassicGroup
from sparklog.kafka.groups.classic_groups import ClassicGroups, Limits
from sparklog.kafka.groups.consumer_groups import ConsumerGroup, ConsumerGroups
from sparklog.kafka.groups.group_errors import group_error
from sparklog.kafka.groups.offset_store import OffsetStore, is_refused, keeps_readers
from sparklog.kafka.groups.timers import Timers
from sparklog.kafka.messages import ErrorCode
from sparklog.log.log import home_of, options_of
from sparklog.storage.group_members import groups_to_json
from sparklog.storage.lease import LeaseLostError

CHECK_MS: Final = 3_000
"""How often the lease is looked at: a stat in a log dir, now and then a request in a store."""
STALE_MS: Final = 20_000
"""Nobody is coordinated by a lease that couldn't be looked at for so long."""
_LOOK_MS: Final = 1_000  # who stands by looks no more often
_TELL_MS: Final = 1_000  # what others know of groups is no older, where anything changed
_TICK_MS: Final = 20  # deadlines that are nearer than that to one another are met at once
_TOUCH_MS: Final = 86_400_000
_ALIAS: Final = 1 << 30
_EVERYWHERE: Final = ("0.0.0.0", "::")  # noqa: S104 - nothing is bound here
_LOGGER: Final = logging.getLogger("sparklog.kafka")


class Coordinator:
    """The groups of a log, while this endpoint coordinates them. On the loop's thread."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        options = broker.options
        self.timers = Timers(monotonic_ms, self._rearm)
        limits = Limits(
            initial_rebalance_delay_ms=options.group_initial_rebalance_delay_ms,
            min_session_timeout_ms=options.group_min_session_timeout_ms,
            max_session_timeout_ms=options.group_max_session_timeout_ms,
            max_size=options.group_max_size,
            members_max_bytes=options.group_members_max_bytes,
        )
        self.classic = ClassicGroups(limits, monotonic_ms, self.timers, emptied=self._emptied)
        self.modern = ConsumerGroups(
            self.timers, self.classic.budget,
            session_timeout_ms=options.group_consumer_session_timeout_ms,
            max_size=options.group_consumer_max_size, emptied=self._emptied,
        )  # fmt: skip
        self.offsets = OffsetStore(broker)
        host = broker.host if broker.host not in _EVERYWHERE else socket.gethostname()
        self._own = Node(broker.node_id, host, broker.port)
        said = {"endpoint": f"{host}:{broker.port}", "node_id": broker.node_id}
        self._lease = home_of(broker.log).endpoint_lease(said)
        self._retention_ms = options_of(broker.log).offsets_retention_ms
        self._is_without_lease = False
        self._checked_ms = self._looked_ms = float("-inf")
        self._seen: Node | None = None
        self._looking: asyncio.Future[Node | None] | None = None
        self._tick: asyncio.TimerHandle | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._checking: asyncio.Task[None] | None = None
        self._refreshing: asyncio.Task[None] | None = None
        self._has_ended, self._ending = False, threading.Lock()
        broker.at_end.append(self.close)
        broker.other_coordinator = self.other

    def close(self) -> None:
        """Give the lease back, so that another endpoint takes over at once. From any thread."""
        with self._ending:
            self._has_ended = True
            self._lease.release()

    # --- who coordinates ---------------------------------------------------------------------

    @property
    def is_here(self) -> bool:
        """Whether this endpoint coordinates, as of a moment ago."""
        held = self._lease.held and monotonic_ms() - self._checked_ms < STALE_MS
        return self._is_without_lease or held

    async def check(self) -> ErrorCode:
        """Return NONE, or why a group's request can't be served here."""
        if self.is_here:
            return ErrorCode.none
        node = await self.find()
        if node is None:
            return ErrorCode.coordinator_not_available
        return ErrorCode.none if self.is_here else ErrorCode.not_coordinator

    async def find(self) -> Node | None:
        """Return which endpoint coordinates; this one becomes it if none does. None: unknown."""
        if self.is_here:
            return self._own
        if self._looking is None:
            if self._seen is not None and monotonic_ms() - self._looked_ms < _LOOK_MS:
                return self._seen
            self._looking = asyncio.ensure_future(self._look())
        looking = self._looking
        try:
            return await asyncio.shield(looking)
        finally:
            if looking.done():
                self._looking = None

    def other(self) -> Node | None:
        """Return the other endpoint that clients were sent to; None: none, or this one coordinates.

        The answer may be old: the lease is looked at behind the call, at most every CHECK_MS. So
        it stops naming an endpoint that has ended.
        """
        seen = None if self.is_here else self._seen
        if seen is None or seen == self._own:
            return None
        is_old = monotonic_ms() - self._looked_ms >= CHECK_MS
        if is_old and (self._refreshing is None or self._refreshing.done()):
            self._refreshing = self._spawn(self._refresh())
        return seen

    async def _refresh(self) -> None:
        if await self.find() is None:  # nobody holds the lease, or the store doesn't answer
            self._looked_ms = monotonic_ms()

    async def _look(self) -> Node | None:
        """Take the lease, or read who has it."""
        try:
            found = await self._broker.run(self._acquire)
        except InvalidRequestError as error:
            self._coordinate_without_lease(str(error))
            return self._own
        except (SparklogError, OSError) as error:
            if is_refused(error):
                self._coordinate_without_lease(str(error))
                return self._own
            _LOGGER.warning("groups can't be coordinated now: %s", error)
            return None
        self._looked_ms = monotonic_ms()
        if found is None:
            return None
        if found == self._own and self.is_here:
            self._begin()
        self._seen = found
        return found

    def _acquire(self) -> Node | None:
        """In the pool. Raises: InvalidRequestError: no lease can be here. StorageUnavailableError.

        Nothing is made where no log is: that may be a mount point.
        """
        if not keeps_readers(self._broker):
            raise InvalidRequestError("it has no place for the lease of endpoints")
        with self._ending:
            if not self._has_ended and (self._lease.held or self._lease.acquire()):
                self._lease.check()
                self._checked_ms = monotonic_ms()
                return self._own
        holder = self._lease.holder()
        host, _, port = str(holder.get("endpoint", "")).rpartition(":")
        if not host or not port.isdigit():
            return None
        node_id = holder.get("node_id")
        node_id = node_id if isinstance(node_id, int) else 0
        # Clients know a node by its id alone, and would take the other one for this.
        return Node(node_id | _ALIAS if node_id == self._own.node_id else node_id, host, int(port))

    def _coordinate_without_lease(self, why: str) -> None:
        if not self._is_without_lease:
            self._is_without_lease = True
            _LOGGER.warning(
                "%s: this endpoint coordinates consumer groups without looking for others (%s); "
                "serve it by one endpoint", self._broker.log.path, why,
            )  # fmt: skip
            self._schedule_upkeep()

    def _begin(self) -> None:
        if self._checking is None:
            _LOGGER.info("%s: this endpoint coordinates consumer groups", self._broker.log.path)
            self._checking = self._spawn(self._keep_lease())
            self._spawn(self._publish_groups())
            self._schedule_upkeep()

    async def _keep_lease(self) -> None:
        """Look whether the lease is still ours, until it isn't."""
        try:
            while self._lease.held:
                await asyncio.sleep(CHECK_MS / 1000)
                try:
                    await self._broker.run(self._lease.check)
                    self._checked_ms = monotonic_ms()
                except LeaseLostError as error:
                    _LOGGER.warning("%s", error)
                except SparklogError as error:
                    _LOGGER.warning("whether this endpoint still coordinates: %s", error)
        finally:
            self._checking = None
            self._resign()

    async def _publish_groups(self) -> None:
        """Tell other processes which groups have members, as long as the lease is ours."""
        told: Fingerprint = ()
        while self._lease.held:
            await asyncio.sleep(_TELL_MS / 1000)
            sign = fingerprint_of(self.classic, self.modern)
            if sign == told:
                continue
            groups = groups_to_json(groups_at_work(self.classic, self.modern))
            try:
                await self._broker.run(self._lease.publish, {"groups": groups})
                told = sign
            except LeaseLostError:
                return
            except SparklogError as error:
                _LOGGER.debug("groups at work can't be told of: %s", error)

    def _resign(self) -> None:
        """Let go of all members: they look for their coordinator, and join there."""
        self.classic.resign()
        self.modern.resign()
        self.timers.clear()
        self._seen = None
        self._looked_ms = float("-inf")

    # --- time --------------------------------------------------------------------------------

    def _rearm(self) -> None:
        """Wake up when the next deadline is due."""
        if self._tick is not None:
            self._tick.cancel()
            self._tick = None
        due_ms = self.timers.next_ms
        if due_ms is not None:
            wait_ms = max(due_ms - monotonic_ms(), _TICK_MS)
            self._tick = self._broker.loop.call_later(wait_ms / 1000, self._expire)

    def _expire(self) -> None:
        self._tick = None
        try:
            self.timers.expire()
        except Exception:
            _LOGGER.exception("a fault in the coordination of groups; it goes on")
        self._rearm()

    def _schedule_upkeep(self) -> None:
        every_ms = self._broker.options.offsets_retention_check_interval_ms
        touch_ms = min(max(self._retention_ms / 4, every_ms), _TOUCH_MS)

        def clean() -> None:
            self.timers.schedule("clean", every_ms, clean)
            self.classic.forget_idle(every_ms)
            self.offsets.expire(self._retention_ms)

        def touch() -> None:
            self.timers.schedule("touch", touch_ms, touch)
            self._spawn(self._touch_all())

        self.timers.schedule("clean", every_ms, clean)
        self.timers.schedule("touch", touch_ms, touch)

    async def check_not_query(self, group: str) -> ErrorCode:
        """Return NONE unless the name is a streaming query's. Cost: a small file or object."""
        try:
            is_taken = await self.offsets.is_query(group)
        except SparklogError as error:
            code = group_error(group, error)
            # A damaged group is one that commits anew.
            return ErrorCode.none if code is ErrorCode.unknown_server_error else code
        return ErrorCode.group_authorization_failed if is_taken else ErrorCode.none

    async def _touch_all(self) -> None:
        """Keep commits of groups at work from expiring, which may read an idle topic (KIP-211)."""
        for group in list(self.classic.groups.values()):
            if self.classic.is_active(group.group):
                await self._touch(group.group, group.is_subscribed_to)
        for each in list(self.modern.groups.values()):
            await self._touch(each.group, each.is_subscribed_to)

    def is_active(self, group: str) -> bool:
        """Tell whether a group has members, of either protocol."""
        return self.classic.is_active(group) or group in self.modern.groups

    def _emptied(
        self, group: ClassicGroup | ConsumerGroup, topics: frozenset[str] | None
    ) -> None:
        """Let a group's commits expire from now on, when its last member is gone (KIP-211)."""
        self._spawn(self._touch(group.group, lambda topic: topics is None or topic in topics))

    async def _touch(self, group: str, is_read: Callable[[str], bool]) -> None:
        old_ms = self._broker.clock() - self._retention_ms // 8
        try:
            known = await self.offsets.reader(group)
            keys = set() if known is None else {
                key for key, at in known.offsets.items() if is_read(key.topic)
            }  # fmt: skip
            if known is not None and any(known.offsets[key].time_ms <= old_ms for key in keys):
                await self.offsets.touch(group, keys)
        except SparklogError as error:
            _LOGGER.warning("commits of group %s may expire early: %s", group, error)

    def _spawn(self, work: Coroutine[None, None, None]) -> "asyncio.Task[None]":
        task = self._broker.loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task
