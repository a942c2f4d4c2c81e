"""Finds missing or damaged files that readers and writers of a log dir need.

Checks names, sizes and small files only. `sparklog verify` finds damage within segments.
"""

from collections.abc import Iterator, Sequence
from typing import Final

from sparklog.common import TopicPartition
from sparklog.errors import SparklogError
from sparklog.format.names import INDEX, TIMEINDEX, log_name
from sparklog.fs import FileSystem
from sparklog.log.due_segments import LocalSegment
from sparklog.logdir.ledger import LEDGER
from sparklog.logdir.lock import State, peek
from sparklog.logdir.offline_partitions import stored_topic_id
from sparklog.logdir.partition.leader_epochs import read_epochs
from sparklog.logdir.repair_advice import REPAIR
from sparklog.logdir.retention.partition_retention import PartitionRetention
from sparklog.logdir.segment_files import bases_of, first_offset, joined, offsets_of
from sparklog.logdir.view import LogDirView
from sparklog.service.metrics.observed import LogMetrics

_SHOWN: Final = 20  # stop after so many faults; a single fault is enough for a verdict


def unreadable_files(fs: FileSystem, directories: Sequence[str], found: LogMetrics) -> list[str]:
    """Return a sentence for each file that makes reads or writes of online partitions fail.

    Cost: the cost of opening the log for reading, a listing, and two small files per partition.
    """
    try:
        view = LogDirView(fs, directories)
        keys = [TopicPartition(name, p) for name, info in view.topics().items() for p in info.dirs]
        view.spans(keys)
    except (SparklogError, OSError) as error:
        return [str(error)]
    page = peek(fs, directories[0])
    is_quiet = page is None or page.state is State.IDLE
    faults: list[str] = []
    for key, place in sorted(found.detail.places.items()):
        if key == LEDGER or key in found.offline:
            continue
        try:
            read_epochs(fs, place.directory)
            stored_topic_id(fs, place.directory)
            if is_quiet:
                faults += _missing_segments(fs, place, found.detail.held.get(key, ()))
        except FileNotFoundError:
            continue  # deleted or moved in the meantime
        except (SparklogError, OSError) as error:
            faults.append(str(error))
        if len(faults) >= _SHOWN:
            break
    if peek(fs, directories[0]) != page:
        return []  # a writer may have renamed files during these checks
    return faults


def _missing_segments(
    fs: FileSystem, place: PartitionRetention, held: Sequence[LocalSegment]
) -> Iterator[str]:
    """Yield a sentence for each segment with a missing or empty `.log` file."""
    names = fs.listdir(place.directory)
    bases = bases_of(names)
    if not bases and place.end > place.log_start:
        yield (
            f"{place.directory} holds no segment, though records up to offset {place.end} are "
            "committed; restore the segments from a copy"
        )
    start = max(place.log_start, place.local_start)
    if bases and bases[0] > start and not place.gaps:
        yield (
            f"{place.directory} begins at offset {bases[0]}, though records from offset {start} on "
            "are committed; restore the first segments from a copy"
        )
    known, timed = set(bases), set(offsets_of(names, TIMEINDEX))
    indexed = set(offsets_of(names, INDEX))
    low = start if place.gaps else min(bases, default=0)
    for base in sorted(indexed):  # a segment without its .log still has both indexes
        if base in timed and base not in known and bases and low <= base <= place.end:
            path = joined(place.directory, log_name(base))
            yield f"{path} is missing, though its indexes are there; restore the file from a copy"
    for base in bases[1:]:
        path = joined(place.directory, log_name(base))
        if base not in timed and base not in indexed and base < place.end:  # not by a writer
            first = first_offset(fs, path)
            if first is not None and first < base:
                yield (
                    f"{path} begins with offset {first}: the file is another segment's, or its "
                    f"first batch is damaged; {REPAIR} moves a copy of another segment away"
                )
    if place.config.compact:
        return  # a cleaned segment may be empty
    for segment in held:
        path = joined(place.directory, log_name(segment.base))
        if segment.base < place.end and fs.size(path) == 0:
            yield f"{path} is empty, though its records are committed; restore the file from a copy"
