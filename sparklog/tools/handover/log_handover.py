"""Hands over a log: a stock Kafka broker can then start on the log dirs and serve all topics.

The log is opened for writing, which recovers it or takes it back from a broker if needed, and is
closed as a broker closes its log dirs. Then, while brokers are still locked out, the topics are
added to the cluster's metadata, and each log dir gets a `meta.properties` that a broker accepts.
Brokers are let in last. After an earlier crash the log still belongs to sparklog, and the same call
continues the handover.
"""

import os
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

from sparklog.clock import Clock, system_clock
from sparklog.config import LogOptions
from sparklog.errors import InvalidRequestError
from sparklog.format.checkpoint_files import topic_id_bytes
from sparklog.format.metadata_records import FeatureLevelRecord, MetadataRecord
from sparklog.fs import LOCAL, FileSystem, read_bytes, write_durably
from sparklog.log.log import home_of
from sparklog.log.topic_names import new_topic_id
from sparklog.logdir.broker_lockout import is_marked_open, lock_out_brokers
from sparklog.logdir.closing import close_commits, close_for_handover
from sparklog.logdir.cluster_metadata import (
    BOOTSTRAP_NAME,
    METADATA_DIR,
    ClusterMetadata,
    metadata_dirs,
    read_bootstrap,
    read_cluster_metadata,
)
from sparklog.logdir.commit_log import LogDirCommits
from sparklog.logdir.detection import holds_log
from sparklog.logdir.home import open_log
from sparklog.logdir.ledger import LEDGER_TOPIC, deleted_topic_ends
from sparklog.logdir.log_dirs import find_dirs
from sparklog.logdir.meta_properties import (
    CLUSTER_ID,
    DIRECTORY_ID,
    NODE_ID,
    give_to_brokers,
    read_properties,
)
from sparklog.logdir.opening import open_commits
from sparklog.logdir.paths import split_path
from sparklog.logdir.recovery.redo import settle_directories
from sparklog.opening import Path, check_log_dirs
from sparklog.tools.handover.bootstrap_checkpoint import append_to_metadata_log, write_bootstrap
from sparklog.tools.handover.group_offsets_csv import csv_text, groups_to_reset, reset_command
from sparklog.tools.handover.inventory import (
    HandedTopic,
    next_producer_id,
    take_inventory,
)
from sparklog.tools.handover.metadata_changes import (
    check_one_node,
    feature_records,
    metadata_changes,
    notes_of,
)
from sparklog.tools.handover.server_properties import (
    DEFAULT_LISTENERS,
    WRITTEN_BY,
    client_address,
    server_properties,
)

T = TypeVar("T")
_ZOOKEEPER_ID: Final = "broker.id"  # of brokers in a cluster without a metadata log


@dataclass(frozen=True, slots=True, kw_only=True)
class HandedOver:
    """The result of a handover, or of a planned handover.

    Attributes:
        properties: The broker's settings.
        command: The command that starts the broker.
        properties_file: The file with the settings; "" if none was written.
        groups: {group: {(topic, partition): offset}}.
        groups_file: The file with these offsets; "" if none was written.
        groups_command: The command that commits the offsets of `groups_file` once the broker runs.
        notes: The differences between the log and the broker, a sentence each.
    """

    directories: Sequence[str]
    cluster_id: str
    node_id: int
    is_new_cluster: bool
    metadata_records: int
    topics: Sequence[HandedTopic]
    properties: str
    properties_file: str
    command: str
    groups: Mapping[str, Mapping[tuple[str, int], int]]
    groups_file: str
    groups_command: str
    notes: Sequence[str]
    check: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerSettings:
    """The broker that takes a log over.

    Attributes:
        node_id: The node id. By default the id in the log dirs, otherwise 1.
        cluster_id: The cluster id. By default the id in the log dirs, otherwise the cluster id of
            the log's endpoint for Kafka clients.
        listeners: Kafka's key of the same name.
        metadata_log_dir: The directory of the cluster's metadata log, if it is in no log dir.
        properties_file: Where to write the broker's settings. A file that another program wrote is
            not replaced.
        groups_file: Where to write the positions of registered groups, in the same way.
    """

    node_id: int | None = None
    cluster_id: str | None = None
    listeners: str = DEFAULT_LISTENERS
    metadata_log_dir: str | None = None
    properties_file: str | None = None
    groups_file: str | None = None


_DEFAULT_BROKER: Final = BrokerSettings()


def hand_over(
    path: Path,
    broker: BrokerSettings = _DEFAULT_BROKER,
    *,
    check: bool = False,
    fs: FileSystem = LOCAL,
    clock: Clock = system_clock,
) -> HandedOver:
    """Make log dirs a directory that Kafka 4.1 serves: a single node, broker and controller.

    `sparklog.open(path, "rw")` takes the log back, once the broker has stopped.

    Args:
        path: All log dirs of the log. If a crash or a broker left them open, they are taken over
            first, as by `sparklog.open(path, "rw")`.
        broker: The settings of the broker.
        check: Make no changes, and return the result that the call would have.
        fs: The file system.
        clock: The current time.

    Raises:
        InvalidRequestError: There is no log in log dirs, a partition is offline, a directory is one
            that a broker would rename or reject, the ids differ from those in the log dirs, or the
            metadata are those of another node.
        LogLockedError: The log is open elsewhere, or a broker runs on it.
        DataCorruptionError: A partition or the metadata log is damaged.
    """
    check_log_dirs(path, "`sparklog export --all --to DIR` makes a log dir of it", fs)
    directories = split_path(path)
    if not any(holds_log(fs, directory) for directory in directories):
        raise InvalidRequestError(f"{os.fspath(path)} contains no log: pass a log's directory")
    handover = _Handover(fs, clock, directories, broker)
    metadata = handover.metadata
    handover.check_files()
    if metadata is not None and not fs.is_dir(metadata):
        raise InvalidRequestError(f"{metadata} does not exist: pass the broker's metadata.log.dir")
    if check:
        _check_present(fs, directories)
        return handover.plan(check=True).result
    handover.check_cluster()
    outside = [metadata] if metadata is not None and metadata not in directories else []

    def plan(commits: LogDirCommits) -> None:
        handover.plan(check=False)
        with commits.exclusive():
            settle_directories(commits.manager)  # a broker would continue an unfinished move

    return run_without_brokers(fs, clock, directories, outside, plan, handover.run)


def run_without_brokers(
    fs: FileSystem,
    clock: Clock,
    directories: Sequence[str],
    outside: Sequence[str],
    plan: Callable[[LogDirCommits], object],
    run: Callable[[], T],
) -> T:
    """Open a log, plan, and close the log by `run`, while brokers are locked out.

    If `plan` raises, the log stays unchanged. `outside` has the broker's directories that are not
    log dirs of the log.
    """
    held = lock_out_brokers(fs, outside)
    try:
        commits = open_commits(fs, clock, directories, LogOptions(), news=False)
        try:
            plan(commits)
        except BaseException:
            close_commits(commits)
            raise
        made: list[T] = []
        close_for_handover(commits, lambda: made.append(run()))
        return made[0]
    finally:
        for file in held:
            file.close()


@dataclass(slots=True, kw_only=True)
class _Plan:
    """The planned writes. `known` is the metadata log to append to, or None for a new cluster."""

    result: HandedOver
    metadata_dir: str
    known: ClusterMetadata | None
    records: list[MetadataRecord]
    properties: dict[str, dict[str, str]] = field(default_factory=dict)


def _check_present(fs: FileSystem, directories: Sequence[str]) -> None:
    """Raise InvalidRequestError if a log dir is missing.

    Opening the log for writing would create the missing log dir.
    """
    for directory in directories:
        if not fs.is_dir(directory):
            raise InvalidRequestError(
                f"{directory} does not exist: mount its disk, or make the directory if its data "
                "was given up",
                path=directory,
            )


class _Handover:
    """A call of `hand_over`."""

    def __init__(
        self,
        fs: FileSystem,
        clock: Clock,
        directories: list[str],
        broker: BrokerSettings,
    ) -> None:
        self._fs, self._clock, self._all = fs, clock, directories
        self._node_id, self._cluster_id = broker.node_id, broker.cluster_id
        self._listeners = broker.listeners
        self.metadata, self._properties_file, self._groups_file = (
            path and os.path.abspath(path)
            for path in (broker.metadata_log_dir, broker.properties_file, broker.groups_file)
        )
        # Drawn once: plan() runs twice, before the log is closed and in run(), and both plans must
        # contain the same ids.
        self._new_cluster_id = new_topic_id()
        self._new_ids = [new_topic_id() for _ in directories]

    def check_files(self) -> None:
        """Refuse to replace a file that another program wrote."""
        path = self._properties_file
        if not path or not self._fs.exists(path):
            return
        if not read_bytes(self._fs, path).startswith(WRITTEN_BY.encode()):
            raise InvalidRequestError(f"{path} exists: choose another file", path=path)

    def check_cluster(self) -> None:
        """Refuse the metadata of another cluster before the log is opened for writing.

        Opening takes a broker's directory over. Then the broker could no longer start, for example
        to be upgraded first.
        """
        present = find_dirs(self._fs, self._all).present
        found = {path: read_properties(self._fs, path) for path in present}
        metadata_dir = self._metadata_dir(present, found)
        self._begun(self._ids(found, [])[0], metadata_dir)

    def _begun(self, node_id: int, metadata_dir: str) -> ClusterMetadata | None:
        """Return the metadata of a cluster that has run, or None for a new cluster.

        Refuses a cluster with other nodes.
        """
        known = read_cluster_metadata(self._fs, metadata_dir)
        if known is None or not known.has_controller_records:
            return None
        check_one_node(known, node_id, metadata_dir)
        return known

    def plan(self, *, check: bool) -> _Plan:
        """Read everything and return the plan, without any change."""
        fs = self._fs
        dirs = find_dirs(fs, self._all)
        present = dirs.present
        known_ids = {path: dirs.known[n].id for n, path in enumerate(self._all[: len(dirs.known)])}
        with open_log(",".join(self._all), fs=fs) as log:
            topics = take_inventory(log, fs, present)
            readers = home_of(log).groups.readers().groups
        found = {path: read_properties(fs, path) for path in present}
        node_id, cluster_id = self._ids(found, topics)
        directory_ids = {
            path: found[path].get(DIRECTORY_ID) or known_ids.get(path) or fresh
            for path, fresh in zip(present, self._new_ids, strict=False)
        }
        metadata_dir = self._metadata_dir(present, found)
        begun = self._begun(node_id, metadata_dir)
        first = [] if begun is not None else self._first_records(metadata_dir)
        records = metadata_changes(
            topics, begun or ClusterMetadata(), node_id=node_id, directory_ids=directory_ids,
            dropped={key.topic for key in deleted_topic_ends(fs, self._all[0])},
            next_producer_id=next_producer_id(fs, topics),
        )  # fmt: skip
        properties = {
            path: found[path]
            | {CLUSTER_ID: cluster_id, NODE_ID: str(node_id), DIRECTORY_ID: directory_ids[path]}
            for path in present
        }
        for path in present:
            # A KRaft broker has node.id; the former key would stay with an id that may differ.
            properties[path].pop(_ZOOKEEPER_ID, None)
        records = [*first, *records]
        result = HandedOver(
            directories=list(present),
            cluster_id=cluster_id,
            node_id=node_id,
            is_new_cluster=begun is None,
            metadata_records=len(records),
            topics=topics,
            properties=server_properties(
                present, node_id=node_id, listeners=self._listeners, metadata_log_dir=metadata_dir
            ),
            **self._files(groups_to_reset(readers, topics)),
            notes=[*self._state_notes(check=check), *notes_of(topics, begun, records)],
            check=check,
        )
        return _Plan(
            result=result, metadata_dir=metadata_dir, known=begun, records=records,
            properties=properties,
        )  # fmt: skip

    def run(self) -> HandedOver:
        """Write the metadata and the requested files, and let brokers in."""
        plan, fs, now = self.plan(check=False), self._fs, self._clock()
        if plan.known is None:
            write_bootstrap(fs, plan.metadata_dir, plan.records, time_ms=now)
        elif plan.records:
            append_to_metadata_log(fs, plan.known, plan.records, time_ms=now)
        if self._properties_file:
            write_durably(fs, self._properties_file, plan.result.properties.encode())
        if self._groups_file and plan.result.groups:
            write_durably(fs, self._groups_file, csv_text(plan.result.groups).encode())
        # Last: from here on a broker can start on the log dirs, so all metadata must be durable.
        for directory, properties in plan.properties.items():
            give_to_brokers(fs, directory, properties)
        return plan.result

    def _ids(
        self, found: Mapping[str, Mapping[str, str]], topics: Sequence[HandedTopic]
    ) -> tuple[int, str]:
        """Return (node id, cluster id), which must be the same in all log dirs.

        The cluster id of a new cluster is the ledger's topic id, because clients of the Kafka
        endpoint already know the log by this id.
        """
        node = _agreed(found, NODE_ID) or _agreed(found, _ZOOKEEPER_ID)
        cluster = _agreed(found, CLUSTER_ID)
        if node is not None and self._node_id not in (None, int(node)):
            raise InvalidRequestError(
                f"node_id={self._node_id}: the log dirs belong to node {node}; leave it out"
            )
        if cluster is not None and self._cluster_id not in (None, cluster):
            raise InvalidRequestError(
                f"cluster_id={self._cluster_id}: the log dirs have {cluster}; leave it out"
            )
        if self._cluster_id is not None:
            _check_cluster_id(self._cluster_id)
        node_id = int(node) if node is not None else (self._node_id or 1)
        if node_id < 0:
            raise InvalidRequestError(f"node_id must be between 0 and 2^31-1; got {node_id}")
        ledger = [topic.id for topic in topics if topic.name == LEDGER_TOPIC]
        return node_id, cluster or self._cluster_id or (*ledger, self._new_cluster_id)[0]

    def _metadata_dir(
        self, present: Sequence[str], found: Mapping[str, Mapping[str, str]]
    ) -> str:
        """Return the directory that has, or will have, the cluster's metadata log."""
        held = metadata_dirs(self._fs, present)
        if self.metadata is not None and self.metadata not in present:
            if not metadata_dirs(self._fs, [self.metadata]):
                raise InvalidRequestError(
                    f"{self.metadata} contains no {METADATA_DIR}: pass the broker's "
                    "metadata.log.dir"
                )
            return self.metadata
        if len(held) > 1:
            raise InvalidRequestError(
                f"{METADATA_DIR} is in {' and '.join(held)}, and a broker accepts a single "
                "directory of this name: move away the directory that is not in the broker's "
                "metadata.log.dir"
            )
        if held:
            return held[0]
        begun = [path for path in present if self._fs.exists(os.path.join(path, BOOTSTRAP_NAME))]
        is_kafkas = any(CLUSTER_ID in said and _ZOOKEEPER_ID not in said for said in found.values())
        if is_kafkas and not begun:
            raise InvalidRequestError(
                "the metadata log of the cluster is not in these log dirs: pass its directory "
                "(metadata_log_dir, --metadata-log-dir); if the cluster has controllers on other "
                "nodes, copy the records instead: `sparklog export --to-kafka`"
            )
        return self.metadata or (begun or present)[0]

    def _first_records(self, metadata_dir: str) -> list[MetadataRecord]:
        """Return a new cluster's first records: the output of `kafka-storage format`, if any."""
        given = read_bootstrap(self._fs, metadata_dir)
        if given is None or not given.has_controller_records:
            return feature_records()
        return [*(FeatureLevelRecord(*each) for each in given.features.items()), *given.others]

    def _files(self, groups: Mapping[str, Mapping[tuple[str, int], int]]) -> dict[str, Any]:
        """Return the fields of `HandedOver` about files, and the commands that use the files."""
        properties_file = self._properties_file or "server.properties"
        groups_file, client = self._groups_file or "groups.csv", client_address(self._listeners)
        return {
            "properties_file": self._properties_file or "",
            "command": f"kafka-server-start.sh {shlex.quote(properties_file)}",
            "groups": groups,
            "groups_file": self._groups_file or "",
            "groups_command": reset_command([*groups], groups_file, client) if groups else "",
        }

    def _state_notes(self, *, check: bool) -> list[str]:
        if not check or not is_marked_open(self._fs, self._all[0]):
            return []
        return ["the log is open, or a crash left it open: offsets may change until it is closed"]


def _agreed(found: Mapping[str, Mapping[str, str]], key: str) -> str | None:
    """Return the value that the log dirs have in common."""
    values = {path: said[key] for path, said in found.items() if said.get(key)}
    if len(set(values.values())) > 1:
        told = ", ".join(f"{path}: {value}" for path, value in values.items())
        raise InvalidRequestError(
            f"the log dirs belong to several brokers: {key} has the values {told}"
        )
    return next(iter(values.values()), None)


def _check_cluster_id(text: str) -> None:
    try:
        topic_id_bytes(text)
    except ValueError as error:
        raise InvalidRequestError(
            f"cluster_id={text}: {error}; it must be 16 bytes as base64, as `kafka-storage "
            "random-uuid` prints them"
        ) from None
