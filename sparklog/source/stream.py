"""The streaming reader. Spark calls all but `read` in one long-lived process a query.

Order of calls: facts of Spark 4.3, see tests/spark. Offsets in the checkpoint are the connector's,
{"topic": {"0": 123}}, with no room for a topic id. They need none where sparklog made the topics:
one that is made again begins at its old end, so an offset below that is the former topic's. While
a query runs the ids are remembered, too, which is all there is for a broker's topics: those begin
at 0 again, and one that was replaced while the query was down is taken for the same.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from sparklog.clock import Clock, system_clock
from sparklog.source.admission import Delay, by_bytes, by_records
from sparklog.source.bounds import resolve_start
from sparklog.source.holdings import Holdings, Look
from sparklog.source.loss import LossPolicy, advance, readable
from sparklog.source.offsets import Offsets, Ranges, from_json, to_json
from sparklog.source.options import SourceOptions
from sparklog.source.plan import FirstPiece, Piece, pieces, split
from sparklog.source.reading import Recipe
from sparklog.source.registration import begins, register
from sparklog.source.schema import arrow_schema, check_schema

Json = dict[str, Any]


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Tails a log: what `spark.readStream.format("sparklog")` runs."""

    def __init__(
        self, options: SourceOptions, schema: StructType, clock: Clock = system_clock
    ) -> None:
        check_schema(schema)
        self._options, self._clock = options, clock
        self._recipe = Recipe(options, arrow_schema(schema))
        self._loss = LossPolicy(options.fail_on_data_loss)
        self._delay = Delay(options.min_offsets_per_trigger, options.max_trigger_delay_ms)
        self._target: Offsets | None = None  # trigger AvailableNow: no further than this
        self._held: Holdings | None = None
        self._ids: dict[str, str] = {}  # of the topics that this run's offsets belong to

    @property
    def _log(self) -> Holdings:
        # Made late: this reader is also made, and pickled, where nothing is read.
        if self._held is None:
            self._held = Holdings(self._options)
        return self._held

    def __getstate__(self) -> Json:
        return {**self.__dict__, "_held": None}

    def initialOffset(self) -> Json:
        """Where a new query starts. Asked twice, so the first answer must stand."""
        bound = self._options.start(streaming=True)
        look = self._log.look()
        self._remember(look)
        held, strategy = look.ranges, self._options.strategy
        start = resolve_start(bound, held, lambda t: self._log.at_times(t, held), strategy=strategy)
        return to_json(start)

    def getDefaultReadLimit(self) -> ReadLimit:
        """Only tells whether there is a limit; `latestOffset` knows them all."""
        most = self._options.max_offsets_per_trigger
        if most is not None:
            return ReadMaxRows(most)
        limited = self._options.max_bytes_per_trigger or self._options.min_offsets_per_trigger
        return ReadMaxRows(2**63 - 1) if limited else ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:
        """Remember the ends as of now."""
        look = self._log.look(lenient=True)
        self._remember(look)
        self._target = {p: high for p, (_, high) in look.ranges.items()}

    def latestOffset(self, start: Json, limit: ReadLimit) -> Json:
        """How far the next micro-batch goes."""
        begin = from_json(start)
        look = self._log.look(lenient=True)
        back = self._moved_back(begin, look)
        if back:  # an empty micro-batch, which a replay finds empty as well
            return to_json(begin | back)
        held = look.ranges
        end = self._available(begin, held)
        if isinstance(limit, ReadAllAvailable):
            return to_json(end)
        begin_all = {p: begin.get(p, held[p][0] if p in held else end[p]) for p in end}
        if self._target is None and self._delay.wait(begin_all, end, self._clock()):
            return start
        if self._options.max_offsets_per_trigger is not None:
            end = by_records(self._options.max_offsets_per_trigger, begin_all, end)
        if self._options.max_bytes_per_trigger is not None:
            limit_bytes = self._options.max_bytes_per_trigger
            end = by_bytes(limit_bytes, _inside(begin_all, held), end, self._log.sizes)
        return to_json(end)

    def _remember(self, look: Look) -> None:
        for topic, topic_id in look.ids.items():
            if topic_id is not None:
                self._ids.setdefault(topic, topic_id)

    def _replaced(self, look: Look) -> set[str]:
        """The topics that have another id than the one this run's offsets belong to."""
        return {t for t, now in look.ids.items() if now and self._ids.get(t, now) != now}

    def _moved_back(self, begin: Offsets, look: Look) -> Offsets:
        """Report the topics that were made again; where those begin that lie before our offsets."""
        replaced = self._replaced(look)
        back: Offsets = {}
        for partition in sorted(p for p in begin if p[0] in replaced and p in look.ranges):
            at, begins = begin[partition], look.begins(partition)
            if at >= begins or partition not in look.bases:  # `readable` reports what lies below
                self._loss.replaced(partition, at, begins)
            if at > begins:
                back[partition] = begins
        self._ids = {t: topic_id for t, topic_id in self._ids.items() if t not in replaced}
        self._remember(look)
        return back

    def _available(self, begin: Offsets, held: Ranges) -> Offsets:
        dropped = self._log.dropped() if begin.keys() - held.keys() else {}
        end = advance(begin, held, dropped, self._loss)
        if self._target is None:
            return end
        # What came after the trigger waits, new partitions too; what is behind us stays.
        known = {p: offset for p, offset in end.items() if p in self._target or p in begin}
        return {p: max(begin.get(p, 0), min(o, self._target.get(p, o))) for p, o in known.items()}

    def reportLatestOffset(self) -> Json:
        """The log's ends, for the query's progress."""
        look = self._log.look(lenient=True)
        return to_json({p: high for p, (_, high) in look.ranges.items()})

    def partitions(self, start: Json, end: Json) -> Sequence[InputPartition]:
        """Plan one micro-batch; also a replayed one, so everything is checked anew."""
        look = self._log.look(lenient=True)
        held, begin, finish = look.ranges, from_json(start), from_json(end)
        replaced = self._replaced(look)  # since `latestOffset`: what it planned is gone
        for partition in sorted(p for p in finish if p[0] in replaced and p in held):
            self._loss.replaced(partition, begin.get(partition, 0), look.begins(partition))
            del finish[partition]
        self._remember(look)
        dropped = self._log.dropped() if finish.keys() - held.keys() else {}
        ranges = readable(begin, finish, held, dropped, self._loss, bases=look.bases)
        planned = split(pieces(ranges, look.ids), self._options, self._log.sizes)
        if not planned:
            return []
        first = FirstPiece(planned[0], begins(begin, finish, held))
        return [InputPartition(piece) for piece in (first, *planned[1:])]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Runs in an executor."""
        piece = partition.value
        if isinstance(piece, FirstPiece):
            register(self._options, piece.start)
            piece = piece.piece
        assert isinstance(piece, Piece)
        return self._recipe.read(piece)

    def commit(self, end: Json) -> None:
        """Nothing to do: the query's checkpoint keeps the offsets, tasks register the query."""

    def stop(self) -> None:
        """Nothing to give back; Spark may never call this."""


def _inside(begin: Offsets, held: Ranges) -> Offsets:
    """Move offsets that are already lost to the log's start, so that bytes can be counted."""
    return {p: max(offset, held[p][0]) if p in held else offset for p, offset in begin.items()}
