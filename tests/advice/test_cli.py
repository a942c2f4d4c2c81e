"""The advice of the commands: the call that is refused, then the calls that are advised."""

from __future__ import annotations

import base64
import contextlib
import io
import json
import re
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient

import sparklog
from sparklog.cli.app import run
from sparklog.errors import SparklogError
from sparklog.fs import LOCAL
from sparklog.log.commit import Identity
from sparklog.service import Service
from tests.advice import test_arguments as arguments
from tests.advice.test_arguments import (
    ROW,
    TIERED,
    Call,
    Case,
    Place,
    cli,
    on_log,
    store_log,
)
from tests.tools.handovers import starts

place = arguments.place


def says(words: str, call: Call) -> Call:
    """A call whose output holds `words`."""

    def made(place: Place) -> Any:
        told = " ".join(call(place).split())
        assert re.search(words, told), told

    return made


def typed(text: str, call: Call) -> Call:
    """A call with `text` on standard input."""

    def made(place: Place) -> Any:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(text.encode())))
            return call(place)

    return made


def a_broker_would_start(place: Place) -> None:
    assert starts(LOCAL, [place.log])


def has_cluster_id(place: Place) -> None:
    assert re.search(r"(?m)^cluster\.id=\S+$", Path(place.log, "meta.properties").read_text())


def moves(place: Place) -> Any:
    """Move t-0 to a second log dir."""
    dirs = f"{place.log},{place.new('b')}"
    Path(place.new("b")).mkdir()
    place.cli("log-dirs", "move", dirs, "--topic", "t", "--partition", "0", "--to", place.new("b"))
    assert Path(place.new("b"), "t-0").is_dir()


def lies_at(name: str) -> Call:
    """List a directory whose name looks like an address."""

    def made(place: Place) -> Any:
        Path(place.log).rename(place.tmp / name)
        with contextlib.chdir(place.tmp):
            assert place.cli("topics", "list", f"./{name}") == "t\n"

    return made


def with_option(place: Place) -> None:
    with place.opened(options={"retention.ms": 5}) as log:
        log.create_topic("u")


USERS = (cli("kafka-users", "NEW/u", "--add", "a", "--no-password"),
         says("a", cli("kafka-users", "NEW/u")))  # fmt: skip
COMMIT_GROUP = on_log(lambda log: log.commit_offsets("g", {"t": {0: 1}}))

OF_KAFKAS_TOOLS: list[Case] = [
    ("`sparklog kafka-users FILE` manages users and their rights", cli("kafka-acls.sh"), USERS),
    ("`sparklog kafka-users FILE`", cli("kafka-delegation-tokens.sh"), USERS),
    ("`sparklog kafka-users FILE` manages users, their passwords and rights",
     cli("configs", "describe", "LOG", "--entity-type", "users"), USERS),
    ("`sparklog log-dirs move PATH --topic NAME --partition N --to DIR`",
     cli("reassign-partitions", "LOG", "--list"), (moves,)),
    ("its cluster id is in meta.properties once it is handed over (`sparklog handover PATH`)",
     cli("kafka-cluster.sh"), (cli("handover", "LOG"), has_cluster_id)),
    ("`sparklog handover PATH` prepares it for a broker", cli("kafka-storage.sh"),
     (cli("handover", "LOG"), a_broker_would_start)),
    ("`sparklog readers list PATH --type --state` lists groups of all types",
     cli("kafka-groups.sh"),
     (COMMIT_GROUP, says(r"group type state ─+ g ", cli("readers", "list", "LOG", "--type",
                                                    "--state")))),
    ("`sparklog readers` shows consumer groups", cli("kafka-share-groups.sh"),
     (COMMIT_GROUP, says("g", cli("readers", "list", "LOG")))),
    ("`sparklog topics`, `sparklog commits`", cli("kafka-metadata-shell"),
     (says("t", cli("topics", "list", "LOG")), says("append", cli("commits", "LOG")))),
    ("`sparklog commits PATH`", cli("kafka-transactions.sh"),
     (says("append", cli("commits", "LOG")),)),
    ("a partition has one replica, which `sparklog verify PATH` checks",
     cli("kafka-replica-verification.sh"),
     (says("2 partitions", cli("verify", "LOG")),)),
    ("`sparklog consume PATH --topic NAME --group GROUP`", cli("kafka-console-share-consumer.sh"),
     (says("v v v", cli("consume", "LOG", "--topic", "t", "--group", "g", "--from-beginning")),)),
    ("use --group, --isolation-level and --offset",
     cli("consume", "LOG", "--topic", "t", "--consumer-property", "x=y"),
     (cli("consume", "LOG", "--topic", "t", "--group", "g"),
      cli("consume", "LOG", "--topic", "t", "--isolation-level", "read_committed"),
      says("^v$", cli("consume", "LOG", "--topic", "t", "--partition", "0", "--offset", "1")))),
    ("pass its PATH", cli("topics", "list", "--zookeeper", "x"),
     (cli("topics", "list", "LOG"),)),
    ("use --reader-property KEY=VALUE",
     cli("produce", "LOG", "IN", "--topic", "t", "--reader-config", "x"),
     (typed("k:w\n", cli("produce", "LOG", "-", "--topic", "t", "--reader-property",
                         "parse.key=true", "--reader-property", "key.separator=:")),
      says(r"\bw\b", cli("consume", "LOG", "--topic", "t", "--from-beginning")))),
    ("use --format", cli("produce", "LOG", "IN", "--topic", "t", "--line-reader", "x"),
     (typed('{"value": "w"}\n', cli("produce", "LOG", "-", "--topic", "t", "--format", "json")),
      says(r"\bw\b", cli("consume", "LOG", "--topic", "t", "--from-beginning")))),
    ("sparklog.open(..., options={...}), `sparklog serve --option`",
     cli("configs", "describe", "LOG", "--entity-type", "topics", "--entity-default"),
     (with_option, cli("serve", "LOG", "--once", "--option", "log.retention.ms=5"))),
    ("`sparklog serve --option`", cli("configs", "describe", "LOG", "--entity-type", "brokers"),
     (cli("serve", "LOG", "--once", "--option", "log.retention.ms=5"),)),
]  # fmt: skip

OF_PATHS: list[Case] = [
    ("pass the log's directory or URL (./{} if that is a directory)",
     cli("topics", "list", "localhost:9092"),
     (cli("topics", "list", "LOG"), lambda p: p.cli("topics", "list", store_log(p)),
      lies_at("localhost:9092"))),
    ("Pass a log's directory",
     lambda p: (Path(p.new("n")).mkdir(), p.cli("verify", p.new("n"))), (cli("verify", "LOG"),)),
    ("pass {}", cli("topics", "list", "IN"), (cli("topics", "list", "LOG"),)),
    ("`sparklog topics describe` shows its sizes",
     lambda p: p.cli("log-dirs", "describe", store_log(p)),
     (says(r"\b\d+ B\b", cli("topics", "describe", "URL")),)),
    ("`sparklog topics describe` shows its segments, which are all in that store",
     lambda p: p.cli("tier", "status", store_log(p)),
     (says("segments", cli("topics", "describe", "URL")),)),
    ("`sparklog export --all --to DIR` makes a log dir of it",
     lambda p: p.cli("handover", store_log(p)),
     (cli("export", "URL", "--all", "--to", "NEW/d"), cli("handover", "NEW/d"))),
]  # fmt: skip

OF_OPTIONS: list[Case] = [
    ("encode the key in base64",
     lambda p: p.cli("erase", p.log, "--topic", "t", "--keys-json",
                     p.file("keys.json", '["\\ud800"]')),
     (lambda p: p.cli("erase", p.log, "--topic", "t", "--keys-json", p.file(
         "keys.json", json.dumps([{"base64": base64.b64encode(b"k").decode()}]))),
      on_log(lambda log: expect(log.read("t").read_all().num_rows, 0), "r"))),
    ("use --password-file -", typed("", cli("kafka-users", "NEW/u", "--add", "a")),
     (typed("secret\n", cli("kafka-users", "NEW/u", "--add", "a", "--password-file", "-")),
      says("a", cli("kafka-users", "NEW/u")))),
    ("choose --execute or --dry-run",
     cli("readers", "reset", "LOG", "--group", "g", "--topic", "t", "--to-earliest",
         "--execute", "--dry-run"),
     (cli("readers", "reset", "LOG", "--group", "g", "--topic", "t", "--to-earliest",
          "--dry-run"),
      on_log(lambda log: expect(log.readers().num_rows, 0), "r"),
      cli("readers", "reset", "LOG", "--group", "g", "--topic", "t", "--to-earliest", "--execute"),
      on_log(lambda log: expect(log.readers().num_rows, 2), "r"))),
    ("leave out --once, --dry-run", cli("serve", "LOG", "--kafka", "0", "--once"),
     (cli("serve", "LOG", "--once"), cli("serve", "LOG", "--dry-run"))),
    ("give text that can be written as UTF-8",
     on_log(lambda log: log.commit([], identity=Identity(writer="a\ud800", batch=0,
                                                         fingerprint="f"))),
     (on_log(lambda log: log.commit([], identity=Identity(writer="\xe4\u6f22", batch=0,
                                                          fingerprint="f"))),)),
    ("Convert the file first, for example by iconv -f LATIN1 -t UTF-8",
     lambda p: ((p.tmp / "latin.csv").write_bytes(b"value,k\xe9y\na,b\n"),
                p.cli("produce", p.log, p.new("latin.csv"), "--topic", "t", "--format", "csv")),
     (lambda p: converted(p),)),
    ("use {}, {} or {}",
     lambda p: p.cli("dump-log", "--files", segment(p), "--print-data-log",
                     "--value-decoder-class", "org.example.Decoder"),
     tuple(lambda p, name=name: p.cli("dump-log", "--files", segment(p), "--print-data-log",
                                      "--key-decoder-class", name)
           for name in ("org.apache.kafka.tools.api.StringDecoder", "StringDecoder"))),
]  # fmt: skip


def expect(found: object, wanted: object) -> None:
    assert found == wanted


def segment(place: Place) -> str:
    return f"{place.log}/t-0/{0:020d}.log"


def converted(place: Place) -> None:
    """Convert a file as the message says, and produce it."""
    command = ["iconv", "-f", "LATIN1", "-t", "UTF-8"]
    file = place.new("latin.csv")
    data = subprocess.run([*command, file], capture_output=True, check=True).stdout
    assert data.decode() == "value,k\xe9y\na,b\n"
    Path(file).write_bytes(data.replace("k\xe9y".encode(), b"key"))
    place.cli("produce", place.log, file, "--topic", "t", "--format", "csv")
    with place.opened("r") as log:
        assert b"a" in log.read("t").read_all()["value"].to_pylist()


CASES = [*OF_KAFKAS_TOOLS, *OF_PATHS, *OF_OPTIONS]


@pytest.mark.parametrize(
    ("advice", "refused", "advised"), CASES, ids=[f"{n}: {c[0]}" for n, c in enumerate(CASES)]
)
def test_what_a_command_advises_works(
    place: Place, advice: str, refused: Call, advised: tuple[Call, ...]
) -> None:
    arguments.test_what_a_refusal_advises_works(place, advice, refused, advised)


# --- what `serve` is advised for -----------------------------------------------------------------

SERVED = {
    ("kafka-server-start.sh",): "`sparklog serve PATH --kafka 9092` runs one for Kafka clients",
    ("kafka-metadata-quorum.sh",): "`sparklog serve PATH --kafka 9092` runs it for Kafka clients",
    ("kafka-client-metrics.sh",): "`sparklog serve PATH --kafka 9092 --metrics-port 9404`",
    ("topics", "list", "h:1"): "can use the server that `sparklog serve PATH --kafka 9092` runs",
    ("configs", "describe", "LOG", "--entity-type", "clients"): "`sparklog serve --kafka-option`",
    ("configs", "describe", "LOG", "--entity-type", "ips"): "`sparklog serve --kafka-option`",
    ("configs", "describe", "LOG", "--entity-type", "groups"): "`sparklog serve --kafka-option`",
    ("configs", "describe", "LOG", "--entity-type", "brokers"): "`sparklog serve --option`",
    ("serve", "LOG", "--kafka-option", "node.id=7"): "--kafka-option requires --kafka",
    ("serve", "LOG", "--ui-insecure"): "the options --ui-... require --ui",
    ("serve", "LOG", "--read-only"): "--read-only requires --kafka or --ui",
}  # fmt: skip


@pytest.mark.parametrize("mode", [(), ("--read-only",)], ids=["writable", "read-only"])
def test_a_log_is_served_with_the_options_that_refusals_name(
    place: Place, mode: tuple[str, ...]
) -> None:
    for words, said in SERVED.items():
        with pytest.raises(SparklogError) as refusal:
            cli(*words)(place)
        assert said in str(refusal.value), words
    command = [sys.executable, "-m", "sparklog.cli", "serve", place.log, "--kafka", "0",
               "--kafka-option", "node.id=7", "--ui", "0", "--ui-insecure", "--json"]  # fmt: skip
    command += mode or ["--metrics-port", "0", "--option", "log.initial.task.delay.ms=1000"]
    with subprocess.Popen([*command], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            told = json.loads(process.stdout.readline())
            found = AdminClient({"bootstrap.servers": told["kafka"]}).list_topics(timeout=240)
            assert list(found.brokers) == [7]
            assert len(found.topics["t"].partitions) == 2
            with urllib.request.urlopen(told["ui"]) as page:
                assert page.status == 200
            if not mode:
                with urllib.request.urlopen(told["metrics"]) as page:
                    assert b"sparklog_" in page.read()
        finally:
            process.send_signal(signal.SIGTERM)
            assert process.wait(240) == 0


# --- what needs more than one call ---------------------------------------------------------------


def test_damage_ends_a_consume_until_it_is_repaired_or_restored(place: Place) -> None:
    with pytest.raises(SparklogError, match="run `sparklog verify PATH --repair`"):
        cli("consume", "LOG", "--topic", "t", "--skip-message-on-error")(place)
    consume = cli("consume", "LOG", "--topic", "t", "--partition", "0", "--from-beginning")
    log, index = Path(segment(place)), Path(segment(place)).with_suffix(".index")
    whole = log.read_bytes()
    data = bytearray(whole)
    data[len(data) // 2 - 1] ^= 1
    log.write_bytes(data)
    index.write_bytes(b"odd")
    with pytest.raises(SparklogError, match="restore the rest from a copy"):
        consume(place)
    with pytest.raises(SparklogError, match="restore the file from a copy"):
        cli("verify", "LOG", "--repair")(place)
    assert log.read_bytes() == data  # nothing gets worse
    log.write_bytes(whole)
    cli("verify", "LOG", "--repair")(place)
    assert index.read_bytes() == b""
    assert consume(place) == "v\nv\n"


@pytest.mark.parametrize("damage", [b"?", b"\xff" * 8], ids=["left over", "goes back"])
def test_an_index_that_fails_its_sanity_check_is_rebuilt(
    tmp_path: Path, damage: bytes, capsys: pytest.CaptureFixture[str]
) -> None:
    path = str(tmp_path / "log")
    with sparklog.open(path, "rw") as log:
        log.create_topic("t", config={"index.interval.bytes": 0})
        for _ in range(4):
            log.append("t", ROW)
    index = Path(path, f"t-0/{0:020d}.index")
    good = index.read_bytes()
    index.write_bytes(good + damage)
    check = ["dump-log", "--files", str(index), "--index-sanity-check"]
    assert run(check) == 1
    assert "`sparklog verify --repair` rebuilds the index" in capsys.readouterr().err
    assert run(["verify", path, "--repair"]) == 0
    assert run(check) == 0
    assert index.read_bytes() == good


def test_copies_without_a_key_are_listed_by_topic(place: Place) -> None:
    url, ring = f"file://{place.new('copies')}", place.new("ring")
    with place.opened() as log:
        for topic in ("a", "b"):
            log.create_topic(topic, config=TIERED)
            for _ in range(3):
                log.append(topic, ROW)
    with Service(place.log, remote=url) as service:
        assert not service.run_once().errors
    Path(ring).write_text(json.dumps({"current": "k", "keys": {"k": "A" * 43 + "="}}))
    assert run(["tier", "rotate", url, "--keyring", ring]) == 0
    said = " ".join(place.capsys.readouterr().err.split())
    assert "`sparklog tier status PATH --keys` shows their topics" in said
    told = place.cli("tier", "status", place.log, "--keys")
    for topic in ("a", "b"):
        assert re.search(rf"(?m)^{topic}: \d+ copies NOT encrypted$", told)
