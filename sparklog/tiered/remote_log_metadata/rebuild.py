"""Rebuild the remote log metadata from a listing of the bucket, and the manifests.

Used for a log whose `__remote_log_metadata` was lost or damaged, and for reading a bucket without a
log.
"""

import logging
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

from sparklog.clock import Clock, system_clock
from sparklog.common import TopicPartition
from sparklog.errors import (
    DataCorruptionError,
    InvalidRequestError,
    SparklogError,
    StorageUnavailableError,
)
from sparklog.fs import LOCAL, FileSystem
from sparklog.log.admin import drop_topic
from sparklog.log.topic_names import REMOTE_METADATA
from sparklog.logdir.home import commits_of, open_log
from sparklog.logdir.segment_files import segment_bases
from sparklog.logdir.view import LogDirView
from sparklog.tiered.layout.manifest import MANIFEST_BYTES_MAX, Manifest, parse
from sparklog.tiered.layout.object_names import Directory, parse_manifest
from sparklog.tiered.layout.topic_owners import TopicOwners
from sparklog.tiered.object_store.store import Store
from sparklog.tiered.remote_log_metadata.topic import ensure_topic, publish
from sparklog.tiered.settings import RemoteSettings, read_settings, write_settings
from sparklog.tiered.target import open_store

if TYPE_CHECKING:
    from sparklog.logdir.commit_log import LogDirCommits

_AT_ONCE: Final = 200
_SHOWN: Final = 5
_LOGGER: Final = logging.getLogger(__name__)


@dataclass(slots=True)
class FoundManifests:
    """The manifests that were found in the bucket below the prefixes of some partitions.

    `damaged` is {name of a manifest's object: description of the damage}.
    """

    manifests: list[Manifest] = field(default_factory=list)
    damaged: dict[str, str] = field(default_factory=dict)


def find(store: Store, directories: Iterable[Directory]) -> FoundManifests:
    """Read all manifests below these prefixes.

    Cost: a list request per prefix and 1,000 objects, a request per manifest; 200 manifests in
    memory at a time.

    Raises:
        StorageUnavailableError: The bucket can't be read.
    """
    manifests = FoundManifests()
    for directory in directories:
        names = [
            o.name
            for o in store.list(directory.prefix)
            if parse_manifest(o.name.removeprefix(directory.prefix)) is not None
        ]
        for first in range(0, len(names), _AT_ONCE):
            batch = names[first : first + _AT_ONCE]
            for name, raw in zip(
                batch, store.get_many(batch, limit=MANIFEST_BYTES_MAX), strict=True
            ):
                _take(manifests, name, raw)
    return manifests


def _take(found: FoundManifests, name: str, raw: bytes | Exception) -> None:
    if isinstance(raw, FileNotFoundError):
        return  # deleted since the listing
    if isinstance(raw, Exception):
        raise raw
    try:
        manifest, _ = parse(raw, path=name)
    except SparklogError as error:
        found.damaged[name] = str(error)
        return
    if manifest.name != name:
        found.damaged[name] = f"{name} contains the manifest {manifest.name}"
    else:
        found.manifests.append(manifest)


def _directories(commits: "LogDirCommits") -> list[Directory]:
    """Return the prefixes of all partitions that may have copies."""
    with commits.exclusive():
        return [
            Directory(name, partition, topic.id)
            for name, topic in commits.state.topics.items()
            for partition in topic.dirs
            if topic.parsed().remote_storage_enable
        ]


def _check_some(commits: "LogDirCommits", store: Store) -> None:
    """Reject a store without any copy if the log has offsets that only copies can contain.

    Cost: a local listing of each partition; listings in the store until a copy is found.
    """
    view = LogDirView(commits.fs, commits.directories)
    needed = []
    for directory in _directories(commits):
        key = TopicPartition(directory.topic, directory.partition)
        path = view.topics()[directory.topic].dirs[directory.partition]
        start, end = view.spans([key])[key]
        try:
            local = next(iter(segment_bases(commits.fs, path)), end)
        except FileNotFoundError:  # offline: its remote offsets are unknown
            continue
        if start < local:
            needed.append(f"{directory.topic}-{directory.partition} [{start}, {local})")
    if needed and not any(store.list(directory.prefix) for directory in _directories(commits)):
        raise StorageUnavailableError(
            f"{store.url} has no copy of this log, though offsets are in remote storage only: "
            f"{', '.join(needed[:_SHOWN])}{', ...' if needed[_SHOWN:] else ''}. This is another "
            "store, or the store was emptied: correct endpoint_url and credentials "
            "(storage_options, or the environment), or bring its objects back",
            path=store.url,
        )


def fill(commits: "LogDirCommits", clock: Clock, store: Store) -> FoundManifests:
    """Find the copies of this log's topics in the bucket, and write them to the metadata topic.

    The metadata topic must be empty. Damaged manifests are logged and left out.
    """
    manifests = find(store, _directories(commits))
    segments = [manifest.segment for manifest in manifests.manifests]
    publish(commits, clock, segments, found=True)
    for name, fault in manifests.damaged.items():
        _LOGGER.error("%s can't be used as a copy: %s", name, fault)
    if segments:
        _LOGGER.warning(
            "%s: %d copies found in %s and taken over", commits.home, len(segments), store.url
        )
    return manifests


def _settings(commits: "LogDirCommits", url: str | None) -> RemoteSettings | None:
    """Return the log's settings of remote storage, with the URL `url` if given.

    Damaged settings are replaced by new settings if `url` is given.
    """
    try:
        settings = read_settings(commits.fs, commits.home)
    except DataCorruptionError:
        if url is None:
            raise
        settings = None
    if url is None:
        return settings
    return RemoteSettings(url) if settings is None else replace(settings, url=url)


def rebuild(
    path: str | os.PathLike[str],
    *,
    url: str | None = None,
    storage_options: Mapping[str, Any] | None = None,
    options: Mapping[str, object] | None = None,
    fs: FileSystem = LOCAL,
    clock: Clock = system_clock,
    store: Store | None = None,
) -> FoundManifests:
    """Rebuild the metadata of a log's copies from the bucket, and replace the old metadata.

    Close the log's service first, and the service of any other log that owned the copies: this log
    becomes the owner. Copies with a started deletion count as finished if their manifests still
    exist; retention deletes them again. Local files are not changed.

    Args:
        path: The log dir, or several joined by ",".
        url: The URL of the copies, for a log whose `sparklog.remote` was lost or damaged. The URL
            is stored in the log.
        storage_options: The options of the store.
        options: The log's options.
        fs: The file system.
        clock: The clock.
        store: The store; by default the store of the URL.

    Raises:
        InvalidRequestError: The log has no remote storage.
        StorageUnavailableError: The bucket can't be read, or lacks all copies that the log needs.
            The log is unchanged if the first check of the bucket fails.
    """
    with open_log(path, mode="rw", options=options, fs=fs, clock=clock) as log:
        commits = commits_of(log)
        settings = _settings(commits, url)
        if store is None:
            if settings is None:
                raise InvalidRequestError(
                    f"{os.fspath(path)} has no remote storage, so there are no metadata to "
                    "rebuild. If the log had remote storage, name its URL: "
                    "`sparklog tier rebuild PATH --remote URL`",
                    path=os.fspath(path),
                )
            store = open_store(settings.url, storage_options)
        store.list("-")  # there is no such name: only checks that the store can be reached
        with commits.exclusive():
            known = REMOTE_METADATA in commits.state.topics
            topics = commits.state.topics.items()
            tiered = {t.id: name for name, t in topics if t.parsed().remote_storage_enable}
        _check_some(commits, store)
        if settings is not None:
            write_settings(fs, commits.home, settings)
            TopicOwners(fs, commits.home, store, clock, take_over=True).foreign(tiered)
        # Only after all checks: until here the log is unchanged.
        if known:
            drop_topic(commits, REMOTE_METADATA)
        ensure_topic(commits)
        return fill(commits, clock, store)
