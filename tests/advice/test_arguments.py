"""Calls that are refused, and the calls that the refusals advise instead.

A case is the advice as `advice.txt` has it, the refused call, and the calls that follow the
advice. The refusal must contain the advice, and the advised calls must work.
"""

from __future__ import annotations

import datetime as dt
import re
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet
import pytest

import sparklog
from sparklog import checkpoint
from sparklog.cli.app import run
from sparklog.errors import SparklogError
from sparklog.format.erasure import KeyPredicate
from sparklog.log.commit import Identity
from sparklog.service import Service, erase
from sparklog.service.health import examine
from sparklog.service.metrics.collecting import collect
from sparklog.sink import options as sink_options
from sparklog.source import options as source_options
from sparklog.tiered.restoring import restore
from sparklog.tools.handover.log_handover import hand_over
from sparklog.tools.moving.to_log_dir import move_to_log_dir
from tests.advice.table import read
from tests.log.forks import fork

ROW = pa.table({"key": [b"k"], "value": [b"v"]})
NAIVE = dt.datetime(2020, 1, 1)


@dataclass(frozen=True)
class Place:
    """A directory with a log dir, `log`, that holds topic t: three records in two partitions."""

    tmp: Path
    capsys: pytest.CaptureFixture[str]

    @property
    def log(self) -> str:
        return str(self.tmp / "log")

    @property
    def url(self) -> str:
        return f"memory://{self.tmp.name}"

    def new(self, name: str) -> str:
        return str(self.tmp / name)

    def file(self, name: str = "file", text: str = "") -> str:
        (self.tmp / name).write_text(text)
        return self.new(name)

    def opened(self, mode: str = "rw", **more: Any) -> sparklog.Log:
        return sparklog.open(self.log, mode, **more)

    def cli(self, *words: str) -> str:
        """Run a command; raises what it says if it fails."""
        code = run([*words])
        told = self.capsys.readouterr()
        if code:
            raise SparklogError(" ".join((told.out + told.err).split()))
        return told.out


@pytest.fixture
def place(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Place:
    found = Place(tmp_path, capsys)
    with found.opened() as log:
        log.create_topic("t", 2)
        for partition in (0, 0, 1):
            log.append("t", ROW, partition)
    return found


Call = Callable[[Place], Any]
Case = tuple[str, Call, tuple[Call, ...]]


def on_log(call: Callable[[sparklog.Log], Any], mode: str = "rw") -> Call:
    """A call on the log of a place."""

    def made(place: Place) -> Any:
        with place.opened(mode) as log:
            return call(log)

    return made


def cli(*words: str) -> Call:
    """A command; LOG, URL and NEW/... are places."""

    def made(place: Place) -> Any:
        known = {"LOG": place.log, "URL": place.url, "IN": place.file("in", "a\nb\n")}
        return place.cli(
            *(known.get(w, w if not w.startswith("NEW/") else place.new(w[4:])) for w in words)
        )

    return made


def after(*calls: Call) -> Call:
    """Several calls, one after the other."""

    def made(place: Place) -> Any:
        return [call(place) for call in calls]

    return made


def closed_log(place: Place) -> None:
    log = place.opened()
    log.close()
    log.topics()


def write_parquet(place: Place) -> None:
    """Write topic t to a Parquet file from `Log.read`; tests/test_docs.py does it with Spark."""
    with place.opened("r") as log:
        pyarrow.parquet.write_table(log.read("t").read_all(), place.new("t.parquet"))
    assert pyarrow.parquet.read_table(place.new("t.parquet")).num_rows == 3


def write_batch(place: Place) -> str:
    """Commit a micro-batch; returns its writer."""
    with place.opened() as log:
        log.commit([], identity=Identity(writer="w", batch=0, fingerprint="f"))
    return "w"


VALUES = {
    "startingTimestamp": "0", "endingTimestamp": "0", "maxOffsetsPerTrigger": "5",
    "maxBytesPerTrigger": "5", "maxRecordsPerPartition": "5", "startingOffsets": "earliest",
    "endingOffsets": "latest", "max.message.bytes": "5000", "batch.size": "500",
    "compression.type": "gzip", "assign": '{"t":[0]}', "subscribePattern": "t.*",
}  # fmt: skip
OF_T = {"path": "/log", "subscribe": "t"}
TIERED = {
    "remote.storage.enable": "true", "internal.segment.bytes": 100, "segment.idle.ms": 1,
}  # fmt: skip


def store_log(place: Place) -> str:
    """Make a log in a store."""
    with sparklog.open(place.url, "rw") as log:
        log.create_topic("t")
        log.append("t", ROW)
    return place.url


def archive(place: Place) -> str:
    """Return the URL of copies of the segments of topic a."""
    url = f"file://{place.new('copies')}"
    with place.opened() as log:
        for topic in {"a", "b"} - log.topics().keys():
            log.create_topic(topic, config=TIERED)
            for _ in range(3):
                log.append(topic, ROW)
    with Service(place.log, remote=url) as service:
        assert not service.run_once().errors
    return url


def raised(health: Any) -> None:
    """Raise what `status` says is wrong."""
    wrong = [check.what for check in health.checks if str(check.level) == "red"]
    if wrong:
        raise SparklogError("; ".join(wrong))


OF_OPENING: list[Case] = [
    ("pass options of the log as options={{}",
     lambda p: sparklog.open(p.new("n"), "rw", foo=1),  # type: ignore[call-arg]
     (lambda p: sparklog.open(p.new("n"), "rw", options={"retention.ms": 5}).close(),)),
    ("leave them out, or give the URL of the store",
     lambda p: p.opened("r", storage_options={"anon": True}),
     (lambda p: p.opened("r").close(),
      lambda p: sparklog.open(f"file://{p.new('s')}", "rw", storage_options={}).close())),
    ("give the log's directory", lambda p: sparklog.open(p.file()), (lambda p: p.opened("r"),)),
    ("give the log dir, {}", lambda p: sparklog.open(f"{p.log}/t-0"), (lambda p: p.opened("r"),)),
    ("correct the path, or create that directory first",
     lambda p: sparklog.open(p.new("no/such/log"), "rw"),
     (lambda p: sparklog.open(p.new("n"), "rw").close(),
      lambda p: ((p.tmp / "no/such").mkdir(parents=True),
                 sparklog.open(p.new("no/such/log"), "rw").close()))),
    ("use the path of a log's directory, or open the path for writing, which creates a log there",
     lambda p: sparklog.open(p.new("n")),
     (lambda p: p.opened("r"), lambda p: sparklog.open(p.new("n"), "rw").close())),
    ("choose an empty directory",
     lambda p: ((p.tmp / "full/docs").mkdir(parents=True), sparklog.open(p.new("full"), "rw")),
     (lambda p: ((p.tmp / "empty").mkdir(), sparklog.open(p.new("empty"), "rw").close()),)),
    ("name each log dir once",
     lambda p: sparklog.open(f"{p.new('a')},{p.new('a')}", "rw"),
     (lambda p: sparklog.open(p.new("a"), "rw").close(),)),
    ("open each bucket separately",
     lambda p: sparklog.open(f"{p.url}-a,{p.url}-b", "rw"),
     (lambda p: [sparklog.open(p.url + x, "rw").close() for x in ("-a", "-b")],)),
    ("open it again with sparklog.open", closed_log, (lambda p: p.opened().topics(),)),
    ("use sparklog.open(path, mode='rw')",
     on_log(lambda log: log.append("t", ROW), "r"), (on_log(lambda log: log.append("t", ROW)),)),
    ("correct it", lambda p: sparklog.open(p.new("a\0b")), (lambda p: p.opened("r"),)),
]  # fmt: skip

OF_TOPICS: list[Case] = [
    ("choose another name", on_log(lambda log: log.create_topic("__sparklog_x")),
     (on_log(lambda log: log.create_topic("x")),)),
    ("choose another", on_log(lambda log: log.create_topic("..")),
     (on_log(lambda log: log.create_topic("dots")),)),
    ("alter or delete it, or use it", on_log(lambda log: log.create_topic("t")),
     (on_log(lambda log: log.append("t", ROW)), on_log(lambda log: log.alter_topic("t", 3)),
      on_log(lambda log: (log.delete_topic("t"), log.create_topic("t"))))),
    ("create a new topic instead", on_log(lambda log: log.alter_topic("t", 1)),
     (on_log(lambda log: log.create_topic("u", 1)),)),
    ("choose a name that no topic had",
     on_log(lambda log: (log.create_topic("u"), log.append("u", ROW), log.delete_topic("u"),
                         log.delete_topic("t"), log.undelete_topic("t", new_name="u"))),
     (on_log(lambda log: log.undelete_topic("t", new_name="w")),)),
    ("Give every row a key",
     on_log(lambda log: (log.create_topic("c", config={"cleanup.policy": "compact"}),
                         log.append("c", pa.table({"value": [b"v"]})))),
     (on_log(lambda log: log.append("c", ROW)),)),
    ("make the record smaller, or raise the limit",
     on_log(lambda log: (log.create_topic("m", config={"max.message.bytes": 100}),
                         log.append("m", pa.table({"value": [b"v" * 200]})))),
     (on_log(lambda log: log.append("m", ROW)),
      on_log(lambda log: (log.alter_topic("m", config={"max.message.bytes": 1000}),
                          log.append("m", pa.table({"value": [b"v" * 200]})))))),
    ("use sparklog configs alter {home} --topic {topic} --add-config max.message.bytes=..., or"
     " Log.alter_topic",
     on_log(lambda log: (log.create_topic("m", config={"max.message.bytes": 100}),
                         log.append("m", pa.table({"value": [b"v" * 200]})))),
     (after(cli("configs", "alter", "LOG", "--topic", "m", "--add-config",
                "max.message.bytes=1000"),
            on_log(lambda log: log.append("m", pa.table({"value": [b"v" * 200]})))),)),
]  # fmt: skip

OF_READERS: list[Case] = [
    ("start at 'earliest' or 'latest', or at an offset in between",
     on_log(lambda log: log.read("t", [0], start={0: 99}).read_all(), "r"),
     tuple(on_log(lambda log, at=at: log.read("t", [0], start=at).read_all(), "r")
           for at in ("earliest", "latest", {0: 1}))),
    ("commit the next offset to read",
     on_log(lambda log: log.commit_offsets("g", {"t": {0: 99}})),
     (on_log(lambda log: log.commit_offsets("g", {"t": {0: 2}})),)),
    ("leave out `topics`",
     on_log(lambda log: log.reset_reader("g", topics="t", offsets={"t": {0: 1}})),
     (on_log(lambda log: log.reset_reader("g", offsets={"t": {0: 1}})),)),
]  # fmt: skip

OF_COPIES: list[Case] = [
    ("give a fork point", lambda p: fork(p.log, p.new("f")),
     (lambda p: fork(p.log, p.new("f"), offsets={"t": {0: 1}}),
      lambda p: fork(p.log, p.new("g"), time_ms=1 << 50))),
    ("pass both", lambda p: fork(p.log, p.new("f"), writer="w"),
     (lambda p: fork(p.log, p.new("f"), writer=write_batch(p), batch=0),)),
    ("name a single directory, or as many as the old log has ({})",
     lambda p: fork(p.log, f"{p.new('f')},{p.new('g')}", time_ms=1 << 50),
     (lambda p: fork(p.log, p.new("f"), time_ms=1 << 50),)),
    ("choose a place beside it", lambda p: fork(p.log, f"{p.log}/f", time_ms=1 << 50),
     (lambda p: fork(p.log, p.new("f"), time_ms=1 << 50),)),
    ("choose a new directory",
     lambda p: ((p.tmp / "f").mkdir(), fork(p.log, p.new("f"), time_ms=1 << 50)),
     (lambda p: fork(p.log, p.new("g"), time_ms=1 << 50),)),
    ("create it", lambda p: fork(p.log, p.new("no/f"), time_ms=1 << 50),
     (lambda p: ((p.tmp / "no").mkdir(), fork(p.log, p.new("no/f"), time_ms=1 << 50)),)),
    ("fork at a later point",
     lambda p: (on_log(lambda log: log.delete_records("t", {0: 2}))(p),
                fork(p.log, p.new("f"), offsets={"t": {0: 1, 1: 0}})),
     (lambda p: fork(p.log, p.new("f"), time_ms=1 << 50),)),
    ("pass --topic, or --all to export all topics", cli("export", "LOG", "--to", "NEW/x"),
     (cli("export", "LOG", "--topic", "t", "--to", "NEW/x"),
      cli("export", "LOG", "--all", "--to", "URL"))),
    ("use only --to with it", cli("export", "LOG", "--all", "--topic", "t", "--to", "URL"),
     (cli("export", "LOG", "--all", "--to", "URL"),)),
    ("pass either --to or --to-kafka", cli("export", "LOG", "--topic", "t"),
     (cli("export", "LOG", "--topic", "t", "--to", "NEW/x"),)),
    ("read the topic with Spark (spark.read.format(\"sparklog\")) or with Log.read, and write the "
     "table with Spark, pyarrow or Polars, as docs/tools.md shows",
     cli("export", "LOG", "--topic", "t", "--to-parquet", "NEW/x"), (write_parquet,)),
    ("use `sparklog fork` for a copy in the same kind of home",
     cli("export", "LOG", "--all", "--to", "NEW/x"),
     (cli("fork", "LOG", "NEW/x", "--time", "2100-01-01T00:00:00Z"),)),
    ("choose another place", cli("export", "LOG", "--topic", "t", "--to", "LOG"),
     (cli("export", "LOG", "--topic", "t", "--to", "NEW/x"),)),
    ("set an end after the start",
     cli("export", "LOG", "--topic", "t", "--to", "NEW/x", "--from-offset", "0=2",
         "--to-offset", "0=1"),
     (cli("export", "LOG", "--topic", "t", "--to", "NEW/x", "--from-offset", "0=1",
          "--to-offset", "0=2"),)),
]  # fmt: skip

OF_COMMANDS: list[Case] = [
    ("pass --add-config or --delete-config", cli("configs", "alter", "LOG", "--topic", "t"),
     (cli("configs", "alter", "LOG", "--topic", "t", "--add-config", "retention.ms=5"),
      cli("configs", "alter", "LOG", "--topic", "t", "--delete-config", "retention.ms"))),
    ("pass --partitions, --config or --delete-config",
     cli("topics", "alter", "LOG", "--topic", "t"),
     (cli("topics", "alter", "LOG", "--topic", "t", "--partitions", "3"),
      cli("topics", "alter", "LOG", "--topic", "t", "--config", "retention.ms=5"),
      cli("topics", "alter", "LOG", "--topic", "t", "--delete-config", "retention.ms"))),
    ("pass either --offset-json-file or --offset", cli("delete-records", "LOG"),
     (cli("delete-records", "LOG", "--offset", "t:0:1"),)),
    ("choose a single action",
     cli("kafka-users", "NEW/u", "--add", "a", "--delete", "b"),
     (cli("kafka-users", "NEW/u", "--add", "a", "--no-password"),
      cli("kafka-users", "NEW/u", "--delete", "a"))),
    ("pass --rights, --password or --password-file",
     after(cli("kafka-users", "NEW/u", "--add", "a", "--no-password"),
           cli("kafka-users", "NEW/u", "--alter", "a")),
     (cli("kafka-users", "NEW/u", "--alter", "a", "--rights", "write"),)),
    ("use --alter",
     after(cli("kafka-users", "NEW/u", "--add", "a", "--no-password"),
           cli("kafka-users", "NEW/u", "--add", "a", "--no-password")),
     (cli("kafka-users", "NEW/u", "--alter", "a", "--rights", "write"),)),
    ("`sparklog topics create` makes one", cli("topics", "list", "NEW/n"),
     (after(cli("topics", "create", "NEW/n", "--topic", "t"), cli("topics", "list", "NEW/n")),)),
    ("leave out --quick, or --repair and --dry-run", cli("verify", "LOG", "--quick", "--repair"),
     (cli("verify", "LOG", "--quick"), cli("verify", "LOG", "--repair"))),
    ("add --give-up", cli("verify", "LOG", "--topic", "t"),
     (cli("verify", "LOG", "--give-up", "--topic", "t"),)),
    ("leave out --repair, --quick and --batches", cli("verify", "LOG", "--give-up", "--quick"),
     (cli("verify", "LOG", "--give-up"),)),
    ("add --topic", cli("verify", "LOG", "--give-up", "--partition", "0"),
     (after(lambda p: shutil.rmtree(f"{p.log}/t-0"),
            cli("verify", "LOG", "--give-up", "--topic", "t", "--partition", "0"),
            on_log(lambda log: log.append("t", ROW, 0))),)),
    ("add --once or --dry-run", cli("serve", "LOG", "--task", "retain"),
     (cli("serve", "LOG", "--task", "retain", "--once"),
      cli("serve", "LOG", "--task", "retain", "--dry-run"))),
    ("add --task compact", cli("serve", "LOG", "--once", "--topic", "k"),
     (after(on_log(lambda log: log.create_topic("k", config={"cleanup.policy": "compact"})),
            cli("serve", "LOG", "--once", "--topic", "k", "--task", "compact")),)),
    ("leave out PATH and the other options", cli("metrics", "--dashboard", "--alert-rules"),
     (cli("metrics", "--dashboard"), cli("metrics", "--alert-rules"))),
    ("leave out --listen and --ui-", cli("ui", "LOG", "--export", "NEW/r.html", "--listen", "0"),
     (cli("ui", "LOG", "--export", "NEW/r.html"),)),
    ("pass another file to --export", cli("ui", "LOG", "--export", "NEW/no/such/r.html"),
     (cli("ui", "LOG", "--export", "NEW/r.html"),)),
    ("leave it out for all partitions",
     lambda p: erase(p.log, "t", [b"k"], partitions=[]),
     (lambda p: erase(p.log, "t", [b"k"]),)),
    ("pass either keys (with null_key, before_ms) or a predicate",
     lambda p: erase(p.log, "t", [b"k"], predicate=KeyPredicate([b"k"])),
     (lambda p: erase(p.log, "t", [b"k"]),
      lambda p: erase(p.log, "t", predicate=KeyPredicate([b"k"])))),
    ("pass at least one key, or null_key=True", lambda p: erase(p.log, "t", []),
     (lambda p: erase(p.log, "t", [b"k"]), lambda p: erase(p.log, "t", [], null_key=True))),
]  # fmt: skip

OF_MORE: list[Case] = [
    ("set exactly one of {}", lambda p: source_options.parse({"path": p.log}, streaming=True),
     tuple(lambda p, key=key: source_options.parse({"path": p.log, key: VALUES.get(key, "t")},
                                                   streaming=True)
           for key in ("assign", "subscribe", "subscribePattern"))),
    ("name at least one topic",
     lambda p: source_options.parse({"path": p.log, "subscribe": " , "}, streaming=True),
     (lambda p: source_options.parse({"path": p.log, "subscribe": "t"}, streaming=True),)),
    ("leave it out, or bound the range by endingOffsets or endingTimestamp",
     lambda p: source_options.parse({**OF_T, "maxOffsetsPerTrigger": "5"}, streaming=False),
     tuple(lambda p, more=more: source_options.parse({**OF_T, **more}, streaming=False)
           for more in ({}, {"endingOffsets": "latest"}, {"endingTimestamp": "0"}))),
    ("write the expression without it, or list the topics with subscribe",
     lambda p: source_options.parse({"path": p.log, "subscribePattern": "(?x)a"}, streaming=True),
     (lambda p: source_options.parse({"path": p.log, "subscribePattern": "a"}, streaming=True),
      lambda p: source_options.parse({"path": p.log, "subscribe": "a"}, streaming=True))),
    ("set it to the log's directory or URL", lambda p: sink_options.parse({"topic": "t"}),
     (lambda p: sink_options.parse({"topic": "t", "path": p.log}),)),
    ("name at least one, or leave it out for all of them",
     lambda p: restore(archive(p), p.new("r"), topics=[]),
     (lambda p: restore(archive(p), p.new("r"), topics=["a"]),
      lambda p: restore(archive(p), p.new("s")))),
    ("name the topic, or pass a time instead of offsets",
     lambda p: restore(archive(p), p.new("r"), start={0: 0}),
     (lambda p: restore(archive(p), p.new("r"), topics=["a"], start={0: 0}),
      lambda p: restore(archive(p), p.new("s"), start=dt.datetime(2000, 1, 1, tzinfo=dt.UTC)))),
    ("pass a name",
     cli("produce", "LOG", "IN", "--topic", "t", "--writer", "", "--batch", "0"),
     (cli("produce", "LOG", "IN", "--topic", "t", "--writer", "w", "--batch", "0"),)),
    ("use a single option",
     cli("readers", "describe", "LOG", "--group", "g", "--offsets", "--state"),
     (after(on_log(lambda log: log.commit_offsets("g", {"t": {0: 1}})),
            cli("readers", "describe", "LOG", "--group", "g", "--offsets"),
            cli("readers", "describe", "LOG", "--group", "g", "--state")),)),
    ("use `sparklog export --all --to` instead",
     cli("fork", "LOG", "URL", "--time", "2100-01-01T00:00:00Z"),
     (cli("export", "LOG", "--all", "--to", "URL"),)),
    ("choose another prefix",
     lambda p: (store_log(p), p.cli("fork", p.url, p.url + "/f", "--time", "2100-01-01T00:00:00Z")),
     (lambda p: p.cli("fork", p.url, p.url + "-f", "--time", "2100-01-01T00:00:00Z"),)),
    ("pass a single directory",
     lambda p: move_to_log_dir(store_log(p), f"{p.new('a')},{p.new('b')}"),
     (lambda p: move_to_log_dir(p.url, p.new("a")),)),
    ("pass files of a segment",
     cli("dump-log", "--files", "NEW/00000000000000000009.log"),
     (lambda p: p.cli("dump-log", "--files", f"{p.log}/t-0/{0:020d}.log"),
      lambda p: p.cli("dump-log", "--files", f"{p.log}/t-0/{0:020d}.index"))),
    ("`sparklog tier restore` restores segments to a disk", cli("dump-log", "--files", "URL"),
     (lambda p: (p.cli("tier", "restore", archive(p), p.new("r")),
                 p.cli("dump-log", "--files", f"{p.new('r')}/a-0/{0:020d}.log")),)),
    ("pass the topic that the partitions belong to", on_log(lambda log: log.give_up(None, [0])),
     (on_log(lambda log: log.give_up("t")),)),
    ("choose another", lambda p: checkpoint.archive(p.log, f"file://{p.log}/archive"),
     (lambda p: checkpoint.archive(p.log, f"file://{p.new('archive')}"),)),
    ("pass a log's directory",
     lambda p: ((p.tmp / "n").mkdir(), hand_over(p.new("n"))), (lambda p: hand_over(p.log),)),
    ("name the log's directory", lambda p: raised(examine(p.file())),
     (lambda p: raised(examine(p.log)),)),
    ("give the log's directory", lambda p: collect(p.new("none")), (lambda p: collect(p.log),)),
]  # fmt: skip

CASES = [*OF_OPENING, *OF_TOPICS, *OF_READERS, *OF_COPIES, *OF_COMMANDS, *OF_MORE]


@pytest.mark.parametrize(
    ("advice", "refused", "advised"), CASES, ids=[f"{n}: {c[0]}" for n, c in enumerate(CASES)]
)
def test_what_a_refusal_advises_works(
    place: Place, advice: str, refused: Call, advised: tuple[Call, ...]
) -> None:
    assert advice in read(), "the advice is not in advice.txt"
    words = re.sub(r"\\\{.*?\\\}+", ".*", re.escape(advice))
    with pytest.raises(SparklogError) as refusal:
        refused(place)
    told = " ".join(str(refusal.value).split())
    if not re.search(words, told):
        pytest.fail(f"the refusal has no such advice: {told}")
    for call in advised:
        call(place)


OPTION = re.compile(r"\b(?:use|option) ((?:[a-zA-Z.]+(?:, | or )?)+)")


def named_options(message: str) -> list[str]:
    """The options that a message advises to use."""
    found = [re.split(r", | or ", names) for names in OPTION.findall(message)]
    return [name for names in found for name in names if name in VALUES]


@pytest.mark.parametrize("name", source_options.REFUSED)
def test_what_the_source_advises_instead_of_an_option(name: str) -> None:
    base = {"path": "/log", "subscribe": "t"}
    message = source_options.REFUSED[name]
    with pytest.raises(SparklogError, match=re.escape(message)):
        source_options.parse({**base, name: "1"}, streaming=False)
    source_options.parse(base, streaming=True)  # what leaves it out
    used = [option for option in named_options(message) if option in source_options.OPTIONS]
    assert used or "leave it out" in message or "cast" in message or "option path" in message
    for option in used:
        chosen = {"path": "/log"} if option in ("assign", "subscribePattern") else base
        is_streaming = "PerTrigger" in option
        source_options.parse({**chosen, option: VALUES[option]}, streaming=is_streaming)


@pytest.mark.parametrize("name", sink_options.REFUSED)
def test_what_the_sink_advises_instead_of_an_option(name: str) -> None:
    base = {"path": "/log", "topic": "t"}
    message = sink_options.REFUSED[name]
    with pytest.raises(SparklogError, match=re.escape(message)):
        sink_options.parse({**base, name: "1"})
    sink_options.parse(base)
    for option in named_options(message):
        sink_options.parse({**base, option: VALUES[option]})
