"""`sparklog readers`: as it was, and as kafka-consumer-groups has it."""

import json
import os
import shutil
from pathlib import Path

import pyarrow as pa
import pytest

import sparklog
from sparklog.cli.app import run
from sparklog.clock import ManualClock
from sparklog.common import TopicPartition
from sparklog.log.log import home_of
from sparklog.log.reader_reset import ResetPlan
from sparklog.logdir.ledger import LEDGER_DIR
from sparklog.storage.group_members import GroupAtWork, Member, groups_to_json
from sparklog.storage.groups import Reader

Capture = pytest.CaptureFixture[str]
LONG = "a-topic-with-more-than-24-characters"


@pytest.fixture
def log(tmp_path: Path, clock: ManualClock) -> str:
    """t has 8 offsets in both partitions; group g is at (3, 0), h at the other topic's 1."""
    path = str(tmp_path / "log")
    with sparklog.open(path, "rw", clock=clock) as log:
        log.create_topic("t", 2)
        log.create_topic(LONG)
        times = pa.array([1000 * n for n in range(8)], pa.timestamp("ms", "UTC"))
        for p in (0, 1):
            log.append("t", pa.table({"value": ["x"] * 8, "timestamp": times}), partition=p)
        log.append(LONG, pa.table({"value": ["x"]}))
        log.commit_offsets("g", {"t": {0: 3, 1: 0}})
        log.commit_offsets("h h", {LONG: {0: 1}})
    return path


def printed(capsys: Capture, *arguments: str, code: int = 0) -> tuple[str, str]:
    assert run(["readers", *arguments]) == code
    said = capsys.readouterr()
    return said.out, said.err


def rows(table: str) -> list[str]:
    """The lines of a table below its head."""
    return [line for line in table.splitlines()[3:] if line.strip()]


def documents(capsys: Capture, *arguments: str) -> list[dict[str, object]]:
    found: list[dict[str, object]] = json.loads(printed(capsys, *arguments, "--json")[0])
    return found


def offsets(log: str, group: str = "g") -> dict[tuple[str, int], int]:
    with sparklog.open(log) as opened:
        return {tuple(k): at.offset for k, at in home_of(opened).groups.positions(group).items()}


def register_query(log: str) -> None:
    with sparklog.open(log) as opened:
        query = Reader("query-1", "query", "host1", "local-1")
        home_of(opened).groups.commit_query(query, {TopicPartition("t", 0): 3}, now_ms=1)


# --- as it was -----------------------------------------------------------------------------------


def test_readers(log: str, capsys: Capture) -> None:
    found = documents(capsys, log, "--topic", "t")
    assert [(r["group"], r["topic"], r["partition"], r["offset"], r["lag"]) for r in found] == [
        ("g", "t", 0, 3, 5), ("g", "t", 1, 0, 8),
    ]  # fmt: skip
    assert documents(capsys, log, "--topic", "other") == []
    assert documents(capsys, "show", log, "--group", "g") == found
    table = [line.split()[:7] for line in printed(capsys, log)[0].splitlines()]
    assert ["g", "group", "t", "0", "3", "0", "8"] in table


def test_a_query_shows_by_its_name(log: str, capsys: Capture) -> None:
    """Only where a name is known; two queries of one name differ by their groups."""
    assert "query" not in printed(capsys, log)[0]
    name = "orders\nevil \x1b[2J"
    with sparklog.open(log) as opened:
        for group in ("query-1", "query-2"):
            query = Reader(group, "query", "host1", "local-1", name=name)
            home_of(opened).groups.commit_query(query, {TopicPartition("t", 0): 3}, now_ms=1)
    out = printed(capsys, log)[0]
    shown = "orders\u240aevil \u241b[2J"
    assert [line.split()[:3] for line in out.splitlines() if shown in line] == [
        [*shown.split(), f"query-{n}"] for n in (1, 2)
    ]
    found = [(r["group"], r["query"]) for r in documents(capsys, log, "--topic", "t")]
    assert sorted(found, key=str) == [
        ("g", None), ("g", None), ("query-1", name), ("query-2", name),
    ]  # fmt: skip
    words = ("reset", log, "--all-groups", "--topic", "t", "--to-latest", "--dry-run")
    assert f"{shown} (query-1) is a streaming query" in printed(capsys, *words)[1]


def test_a_reader_is_deleted(log: str, capsys: Capture) -> None:
    assert "is no reader of this log" in printed(capsys, log, "--delete", "none", code=1)[1]
    assert "can't be combined" in printed(capsys, log, "--delete", "g", "--topic", "t", code=2)[1]
    assert printed(capsys, log, "--delete", "g")[0] == "group g: forgotten\n"
    assert printed(capsys, log, "--delete=h h")[0] == "group h h: forgotten\n"
    assert printed(capsys, log)[0] == "no reader is registered\n"


# --- list, describe ------------------------------------------------------------------------------


def test_list(log: str, capsys: Capture) -> None:
    register_query(log)
    for words in (["list", log], ["--list", "--bootstrap-server", log], [log, "--list"]):
        assert printed(capsys, *words)[0] == "g\nh h\nquery-1\n"
    table = rows(printed(capsys, log, "--list", "--state", "--type")[0])
    assert [line.split() for line in table] == [
        ["g", "Classic", "Empty"], ["h", "h", "Classic", "Empty"], ["query-1", "Classic", "Stable"],
    ]  # fmt: skip
    stable = printed(capsys, log, "--list", "--state", "stable, Reconciling")[0]
    assert [line.split()[0] for line in rows(stable)] == ["query-1"]
    assert documents(capsys, log, "--list", "--type", "consumer") == []
    known = "the known values are Empty"
    assert known in printed(capsys, log, "--list", "--state", "asleep", code=2)[1]


def test_describe(log: str, capsys: Capture) -> None:
    out, err = printed(capsys, log, "--describe", "--group", "g", "--verbose")
    assert out.splitlines()[1].split() == [
        "group", "topic", "partition", "leader", "epoch", "offset", "end", "lag", "member", "host",
        "client",
    ]  # fmt: skip
    assert [line.split() for line in rows(out)] == [
        ["g", "t", "0", "0", "3", "8", "5", "-", "-", "-"],
        ["g", "t", "1", "-", "0", "8", "8", "-", "-", "-"],
    ]  # fmt: skip
    assert err == "group g has no active members\n"
    out, err = printed(capsys, log, "--describe", "--group", "none", "--group", "g", code=1)
    assert "group none does not exist" in err and "t " in out
    both = "--describe", "--members", "--state"
    assert "exclude each other" in printed(capsys, log, *both, code=2)[1]


def test_a_group_at_work(log: str, capsys: Capture) -> None:
    """What another process, an endpoint, tells of its members; and that they are left alone."""
    register_query(log)
    one = Member(member_id="c-1", client_id="c", host="/h", assigned={"t": [1, 0], "u": [0]})
    two = Member(member_id="c-2", client_id="c", host="/h", instance_id="i2", assigned={})
    group = GroupAtWork(
        group="g", kind="Consumer", state="Stable", assignor="uniform", members=(one, two)
    )
    with sparklog.open(log) as opened:
        lease = home_of(opened).endpoint_lease({"endpoint": "h:9092", "node_id": 7})
        assert lease.acquire()
        lease.publish({"groups": groups_to_json([group])})
        lines = rows(printed(capsys, log, "--describe", "--group", "g")[0])
        assert [line.split()[1:] for line in lines] == [
            ["t", "0", "3", "8", "5", "c-1", "/h", "c"],
            ["t", "1", "0", "8", "8", "c-1", "/h", "c"],
            ["u", "0", "-", "-", "-", "c-1", "/h", "c"],
        ]
        out, err = printed(capsys, log, "--describe", "--group", "g", "--members", "--verbose")
        assert [line.split() for line in rows(out)] == [
            ["g", "c-1", "/h", "c", "-", "3", "t:0,1;u:0"],
            ["g", "c-2", "/h", "c", "i2", "0", "-"],
        ]
        assert err == ""
        out = printed(capsys, log, "--describe", "--group", "g", "--state")[0]
        assert rows(out)[0].split() == ["g", "h:9092", "7", "uniform", "Stable", "2"]
        assert documents(capsys, log, "--list", "--type", "consumer")[0]["group"] == "g"
        reset = [log, "--reset-offsets", "--topic", "t", "--to-earliest", "--execute"]
        out, err = printed(capsys, *reset, "--group", "g", "--group", "h h", code=1)
        assert "the current state is Stable: end its 2 members first (c/h)" in err
        assert offsets(log) == {("t", 0): 3, ("t", 1): 0}
        assert offsets(log, "h h")["t", 0] == 0  # the others are reset, as with Kafka's tool
        assert (
            "group g: has members"
            in printed(capsys, log, "--delete", "--group", "g", code=1)[1]
        )
        assert (
            "members of group g read t"
            in printed(capsys, log, "--delete-offsets", "--group", "g", "--topic", "t:0", code=1)[0]
        )
        lease.release()
    assert len(rows(printed(capsys, *reset, "--group", "g")[0])) == 2


# --- reset ---------------------------------------------------------------------------------------

@pytest.mark.parametrize(
    ("scenario", "wanted"),
    [
        (["--to-earliest"], 0), (["--to-latest"], 8), (["--to-offset", "5"], 5),
        (["--to-current"], 3), (["--shift-by", "2"], 5), (["--shift-by", "-2"], 1),
        (["--shift-by=-99"], 0), (["--to-offset", "99"], 8),
        (["--to-datetime", "1970-01-01T00:00:04.000"], 4), (["--to-datetime", "4001"], 5),
        (["--to-datetime", "1970-01-01T01:00:04+01:00"], 4), (["--by-duration", "PT1S"], 8),
        (["--by-duration", "P90000D"], 0),
    ],
)  # fmt: skip
def test_reset(log: str, capsys: Capture, scenario: list[str], wanted: int) -> None:
    words = ["reset", log, "--group", "g", "--topic", "t:0", *scenario]
    out, err = printed(capsys, *words)
    assert [line.split() for line in rows(out)] == [["g", "t", "0", "3", str(wanted)]]
    assert err.endswith("--execute applies them; --dry-run omits this line.\n")
    assert "Nothing was changed" not in printed(capsys, *words, "--dry-run")[1]
    assert offsets(log) == {("t", 0): 3, ("t", 1): 0}
    assert printed(capsys, *words, "--execute")[0] == out
    assert offsets(log) == {("t", 0): wanted, ("t", 1): 0}


def test_export_and_back(log: str, capsys: Capture, tmp_path: Path) -> None:
    words = [log, "--reset-offsets", "--dry-run", "--export", "--all-topics", "--to-current"]
    out = printed(capsys, *words, "--group", "g")[0]
    assert out == "t,0,3\nt,1,0\n"
    every = printed(capsys, *words, "--all-groups")[0]
    assert every == f"g,t,0,3\ng,t,1,0\nh h,{LONG},0,1\n"
    one, all_of_them = tmp_path / "one.csv", tmp_path / "all.csv"
    one.write_text(out)
    all_of_them.write_text(every)
    printed(capsys, log, "--reset-offsets", "--all-groups", "--all-topics", "--to-earliest",
            "--execute")  # fmt: skip
    assert offsets(log) == {("t", 0): 0, ("t", 1): 0}
    back = [log, "--reset-offsets", "--execute", "--from-file"]
    printed(capsys, *back, str(one), "--group", "g")
    assert offsets(log) == {("t", 0): 3, ("t", 1): 0}
    assert offsets(log, "h h") == {(LONG, 0): 0}
    printed(capsys, *back, str(all_of_them), "--all-groups")
    assert offsets(log, "h h") == {(LONG, 0): 1}
    printed(capsys, *back, str(one), "--group", "new")  # to another group than it came from
    assert offsets(log, "new") == {("t", 0): 3, ("t", 1): 0}
    assert (
        "the file has no offsets for group nobody"
        in printed(capsys, *back, str(all_of_them), "--group", "nobody", code=1)[1]
    )


def test_all_groups_leave_queries_alone(log: str, capsys: Capture) -> None:
    register_query(log)
    words = [log, "--reset-offsets", "--all-topics", "--to-latest", "--execute"]
    before = offsets(log, "query-1")
    out, err = printed(capsys, *words, "--all-groups")
    err = " ".join(err.split())
    assert "query-1 is a streaming query, which continues from its checkpoint" in err
    assert "it is skipped (`sparklog checkpoint reset CHECKPOINT --to BATCH`)" in err
    assert "query-1" not in out
    assert offsets(log, "query-1") == before
    assert offsets(log)["t", 0] == 8
    assert (
        "sparklog checkpoint reset CHECKPOINT"
        in printed(capsys, *words, "--group", "query-1", code=2)[1]
    )


def test_all_groups_are_planned_before_one_is_reset(log: str, capsys: Capture) -> None:
    register_query(log)
    words = [log, "--reset-offsets", "--topic", "t", "--to-latest", "--execute", "--group", "g"]
    assert "is a streaming query" in printed(capsys, *words, "--group", "query-1", code=2)[1]
    assert offsets(log) == {("t", 0): 3, ("t", 1): 0}


def test_a_group_that_fails_leaves_the_others_theirs(
    log: str, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And which ones were reset is told."""
    execute = ResetPlan.execute

    def refusing(plan: ResetPlan) -> None:
        if plan.group == "g":
            raise sparklog.StorageUnavailableError("the disk is full")
        execute(plan)

    monkeypatch.setattr(ResetPlan, "execute", refusing)
    words = [log, "--reset-offsets", "--topic", "t:0", "--to-latest", "--execute"]
    out, err = printed(capsys, *words, "--group", "g", "--group", "h h", code=1)
    assert err == "the disk is full\n"
    assert [line.split() for line in rows(out)] == [["h", "h", "t", "0", "-", "8"]]
    assert offsets(log)["t", 0] == 3
    assert offsets(log, "h h")["t", 0] == 8


def test_json(log: str, capsys: Capture) -> None:
    words = [log, "--reset-offsets", "--group", "g", "--topic", "t:0", "--to-offset", "99"]
    assert json.loads(printed(capsys, *words, "--dry-run", "--json")[0]) == {
        "executed": False,
        "offsets": [{
            "group": "g", "topic": "t", "partition": 0, "before": 3, "offset": 8,
            "warning": "New offset (99) is higher than latest offset for topic partition t-0. "
            "Value will be set to 8",
        }],
    }  # fmt: skip


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--topic", "t", "--to-latest"], "pass either --group or --all-groups"),
        (["--group", "g", "--all-groups", "--topic", "t", "--to-latest"], "pass either --group"),
        (["--group", "g", "--topic", "t"], "is required: --to-earliest, --to-latest"),
        (["--group", "g", "--topic", "t", "--to-latest", "--to-offset", "0"], "exactly one of"),
        (["--group", "g", "--to-latest"], "scopes should be defined: --all-topics, --topic."),
        (["--group", "g", "--topic", "t", "--all-topics", "--to-latest"], "scopes should be"),
        (["--group", "g", "--topic", "t", "--to-latest", "--execute", "--dry-run"], "or --dry-run"),
        (["--group", "g", "--topic", "t:x", "--to-latest"], "Invalid partition 'x' specified"),
        (["--group", "g", "--topic", "t:0:1", "--to-latest"], "Invalid topic arg 't:0:1'"),
        (
            ["--group", "g", "--topic", "t:7", "--to-latest"],
            "has no partition 7; the topic's partitions are 0 to 1",
        ),
        (["--group", "g", "--topic", "nope", "--to-latest"], "nope is not in"),
        (["--group", "g", "--topic", "t", "--to-datetime", "soon"], "an ISO time such as"),
        (["--group", "g", "--topic", "t", "--by-duration", "1h"], "must have the form PnDTnHnMnS"),
        (["--group", "g", "--topic", "t", "--by-duration", "PT"], "must have the form PnDTnHnMnS"),
        (["--group", "g", "--topic", "t", "--by-duration", "P9999999999D"], "longer than any log"),
        (["--group", "g", "--topic", "t", "--from-file", "/none"], "No such file"),
        (["--group", "g", "--topic", "t", "--from-file", "FILE"], "names the topics itself"),
        (["--group", "g", "--from-file", "FILE"], "row 2: 't,0,x' must have the form topic"),
        (["--group", "h h", "--topic", "t", "--shift-by", "1"], "Cannot shift offset for"),
        (["--group", "g", "--topic", "t", "--to-latest", "--command-config", "x"], "no meaning"),
    ],
)
def test_wrong_use(log: str, capsys: Capture, tmp_path: Path, words: list[str], says: str) -> None:
    (tmp_path / "plan.csv").write_text("t,0,1\nt,0,x\n")
    words = [word.replace("FILE", str(tmp_path / "plan.csv")) for word in words]
    assert says in " ".join(printed(capsys, log, "--reset-offsets", *words, code=2)[1].split())
    assert offsets(log) == {("t", 0): 3, ("t", 1): 0}


def test_more_than_one_action(log: str, capsys: Capture) -> None:
    assert "exactly one action" in printed(capsys, log, "--list", "--describe", code=2)[1]
    assert (
        "exactly one action"
        in printed(capsys, log, "--delete", "--group", "g", "--reset-offsets", code=2)[1]
    )


# --- delete, delete-offsets ----------------------------------------------------------------------


def test_delete(log: str, capsys: Capture) -> None:
    out, err = printed(capsys, "--delete", "--group", "none", "--group", "h h", log, code=1)
    assert (out, err) == ("group h h: forgotten\n", "group none: does not exist\n")
    assert "pass either --group or --all-groups" in printed(capsys, log, "--delete", code=2)[1]
    assert printed(capsys, log, "--delete", "--all-groups")[0] == "group g: forgotten\n"


def test_delete_offsets(log: str, capsys: Capture) -> None:
    words = [log, "--delete-offsets", "--group", "g", "--topic"]
    out = printed(capsys, *words, "t:0")[0]
    assert [line.split() for line in rows(out)] == [["t", "0", "forgotten"]]
    assert offsets(log) == {("t", 1): 0}
    out = printed(capsys, *words, "t:5", "--topic", "none", code=1)[0]
    assert out.count("is not in this log") == 2
    assert (
        "does not exist"
        in printed(capsys, log, "--delete-offsets", "--group", "x", "--topic", "t", code=1)[1]
    )


def test_a_brokers_directory_keeps_no_readers(tmp_path: Path, capsys: Capture) -> None:
    with sparklog.open(tmp_path / "log", "rw") as opened:
        opened.create_topic("t")
    (tmp_path / "log" / "sparklog.topics").unlink()
    shutil.rmtree(tmp_path / "log" / LEDGER_DIR)  # a broker's directory, then
    words = ["--reset-offsets", "--group", "g", "--topic", "t", "--to-latest", "--execute"]
    said = "groups are stored by the broker (kafka-consumer-groups), and an archive has none"
    assert said in printed(capsys, str(tmp_path / "log"), *words, code=2)[1]
    before = sorted(os.listdir(tmp_path / "log"))
    for more in ([], ["-f", "--timeout-ms", "0"], ["--offset", "earliest"]):
        words = ["consume", str(tmp_path / "log"), "--topic", "t", "--group", "g", *more]
        assert run(words) == 2
        err = capsys.readouterr().err
        assert said in err
        assert "; read without a group: pass start" in err
    words = ["consume", str(tmp_path / "log"), "--topic", "t", "--from-beginning"]
    assert run(words) == 0
    assert sorted(os.listdir(tmp_path / "log")) == before
