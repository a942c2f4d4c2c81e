"""Decides which endpoint coordinates the log's groups, and runs the periodic work of groups.

Two coordinating endpoints would each assign all partitions to their own members. Therefore only the
holder of the log's endpoint lease coordinates. The other endpoints read its address in the lease
and send clients there (FindCoordinator). An endpoint acquires the lease when a client first
requests a coordinator, and releases it when it stops. If the holder dies, the next endpoint with
such a request acquires the lease, and members join again. A log without a place for a lease (an
archive, a broker's directory, a read-only location) has a coordinator per endpoint, which is logged
once.
"""

import asyncio
import logging
import socket
import threading
from collections.abc import Callable, Coroutine
from typing import Final

from sparklog.clock import monotonic_ms
from sparklog.errors import InvalidRequestError, SparklogError
from sparklog.kafka.api_errors import group_error
from sparklog.kafka.broker import Broker, Node
from sparklog.kafka.groups.active_groups import Fingerprint, fingerprint_of, groups_at_work
from sparklog.kafka.groups.classic_group import ClassicGroup
from sparklog.kafka.groups.classic_groups import ClassicGroups, Limits
from sparklog.kafka.groups.consumer_groups import ConsumerGroup, ConsumerGroups
from sparklog.kafka.groups.offset_store import OffsetStore, is_refused, keeps_readers
from sparklog.kafka.messages import ErrorCode
from sparklog.kafka.timers import Timers
from sparklog.log.log import home_of, options_of
from sparklog.storage.group_members import groups_to_json
from sparklog.storage.lease import LeaseLostError

CHECK_MS: Final = 3_000
"""How often the lease is checked: a stat in a log dir, an occasional request in a store."""
STALE_MS: Final = 20_000
"""An unverified lease is not used for coordination after this time."""
_LOOK_MS: Final = 1_000  # a standby endpoint checks no more often
_TELL_MS: Final = 1_000  # maximum age of the published groups after a change
_TICK_MS: Final = 20  # deadlines closer than this share a wake-up
_TOUCH_MS: Final = 86_400_000
_ALIAS: Final = 1 << 30
_EVERYWHERE: Final = ("0.0.0.0", "::")  # noqa: S104 - nothing is bound here
_LOGGER: Final = logging.getLogger("sparklog.kafka")


class Coordinator:
    """The groups that this endpoint coordinates. Used on the event loop's thread."""

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
        self._is_without_lease = self._has_warned = False
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
        """Release the lease, so that another endpoint can take over at once. Thread-safe."""
        with self._ending:
            self._has_ended = True
            self._lease.release()

    # --- leadership -------------------------------------------------------------------------------

    @property
    def is_here(self) -> bool:
        """Whether this endpoint coordinates, as of the last check."""
        # An endpoint that could not check its lease for long may have been replaced by another one.
        held = self._lease.held and monotonic_ms() - self._checked_ms < STALE_MS
        return self._is_without_lease or held

    async def check(self) -> ErrorCode:
        """Return NONE, or the reason why a group's request cannot be served here."""
        if self.is_here:
            return ErrorCode.none
        node = await self.find()
        if node is None:
            return ErrorCode.coordinator_not_available
        return ErrorCode.none if self.is_here else ErrorCode.not_coordinator

    async def find(self) -> Node | None:
        """Return the coordinating endpoint, or None if unknown. Acquires a free lease."""
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
        """Return the other endpoint that clients were sent to.

        Returns None without another endpoint, or if this endpoint coordinates. The result may be
        old: the lease is read in the background, at most every CHECK_MS, so an endpoint that has
        stopped is eventually no longer returned.
        """
        seen = None if self.is_here else self._seen
        if seen is None or seen == self._own:
            return None
        is_old = monotonic_ms() - self._looked_ms >= CHECK_MS
        if is_old and (self._refreshing is None or self._refreshing.done()):
            self._refreshing = self._spawn(self._refresh())
        return seen

    async def _refresh(self) -> None:
        if await self.find() is None:  # the lease is free, or the store does not answer
            self._looked_ms = monotonic_ms()

    async def _look(self) -> Node | None:
        """Acquire the lease, or read the holder of the lease."""
        try:
            node = await self._broker.run(self._acquire)
        except InvalidRequestError as error:
            self._coordinate_without_lease(str(error))
            return self._own
        except (SparklogError, OSError) as error:
            # A read-only location will never have a lease, and a store may only be unreachable now.
            if is_refused(error):
                self._coordinate_without_lease(str(error))
                return self._own
            _LOGGER.warning("groups can't be coordinated at the moment: %s", error)
            return None
        self._looked_ms = monotonic_ms()
        if node is None:
            return None
        if node == self._own and self.is_here:
            self._begin()
        elif node.node_id == self._own.node_id | _ALIAS and not self._has_warned:
            self._has_warned = True
            _LOGGER.warning(
                "%s: the endpoint at %s:%d has the same node.id (%d) as this endpoint, so that "
                "consumers may wait for their session timeout before they join a group; give each "
                "endpoint of the log a node.id of its own",
                self._broker.log.path, node.host, node.port, self._own.node_id,
            )  # fmt: skip
        self._seen = node
        return node

    def _acquire(self) -> Node | None:
        """Acquire the lease. Runs in the pool.

        Returns:
            The endpoint that holds the lease, or None if the holder is unknown.

        Raises:
            InvalidRequestError: The log has no place for a lease.
            StorageUnavailableError: There is no log, for example because the disk is not mounted.
        """
        if not keeps_readers(self._broker):
            raise InvalidRequestError("the log has no place for the endpoint lease")
        # A lease that is acquired after `close`, which another thread calls, would not be released.
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
        # Clients identify a node by the id alone, and would take two endpoints with the same id for
        # one. The default of node.id is the same everywhere. The alias is a makeshift: the holder
        # lists itself in Metadata without the alias, whereupon librdkafka drops the connection to
        # the alias. If a first JoinGroup is under way there, its member id (KIP-394) is lost, and
        # the group waits for this id until the session timeout.
        return Node(node_id | _ALIAS if node_id == self._own.node_id else node_id, host, int(port))

    def _coordinate_without_lease(self, why: str) -> None:
        if not self._is_without_lease:
            self._is_without_lease = True
            _LOGGER.warning(
                "%s: this endpoint coordinates consumer groups without a lease (%s); the log "
                "must have only one endpoint", self._broker.log.path, why,
            )  # fmt: skip
            self._schedule_upkeep()

    def _begin(self) -> None:
        if self._checking is None:
            _LOGGER.info("%s: this endpoint coordinates consumer groups", self._broker.log.path)
            self._checking = self._spawn(self._keep_lease())
            self._spawn(self._publish_groups())
            self._schedule_upkeep()

    async def _keep_lease(self) -> None:
        """Check the lease periodically, until the lease is lost."""
        try:
            while self._lease.held:
                await asyncio.sleep(CHECK_MS / 1000)
                try:
                    await self._broker.run(self._lease.check)
                    self._checked_ms = monotonic_ms()
                except LeaseLostError as error:
                    _LOGGER.warning("%s", error)
                except SparklogError as error:
                    _LOGGER.warning("the endpoint lease can't be checked: %s", error)
        finally:
            self._checking = None
            self._resign()

    async def _publish_groups(self) -> None:
        """Publish the groups with members to other processes until the lease is lost."""
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
            except LeaseLostError:  # the new holder publishes its own groups
                return
            except SparklogError as error:
                _LOGGER.debug("the active groups can't be published: %s", error)

    def _resign(self) -> None:
        """Remove all members, which find the new coordinator and join there."""
        self.classic.resign()
        self.modern.resign()
        self.timers.clear()
        self._seen = None
        self._looked_ms = float("-inf")

    # --- time --------------------------------------------------------------------------------

    def _rearm(self) -> None:
        """Schedule a wake-up for the next deadline."""
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
            _LOGGER.exception("an error in the group coordination; it continues")
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
        """Return NONE unless the name belongs to a streaming query.

        Cost: a small file or object.
        """
        try:
            is_taken = await self.offsets.is_query(group)
        except SparklogError as error:
            code = group_error(group, error)
            # A damaged group is rewritten by its next commit.
            return ErrorCode.none if code is ErrorCode.unknown_server_error else code
        return ErrorCode.group_authorization_failed if is_taken else ErrorCode.none

    async def _touch_all(self) -> None:
        """Renew the commits of active groups, which may read an idle topic (KIP-211)."""
        for group in list(self.classic.groups.values()):
            if self.classic.is_active(group.group):
                await self._touch(group.group, group.is_subscribed_to)
        for each in list(self.modern.groups.values()):
            await self._touch(each.group, each.is_subscribed_to)

    def is_active(self, group: str) -> bool:
        """Return True if a group has members, of either protocol."""
        return self.classic.is_active(group) or group in self.modern.groups

    def _emptied(
        self, group: ClassicGroup | ConsumerGroup, topics: frozenset[str] | None
    ) -> None:
        """Start the expiration of a group's commits when the last member leaves (KIP-211)."""
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
