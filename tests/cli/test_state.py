"""`sparklog checkpoint rewrite`, `erase`, `bootstrap` and `diff` as a user calls them."""

import json
import logging
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import click
import pytest
from pyspark.sql import SparkSession

from sparklog.cli.app import run
from sparklog.cli.checkpoint import checkpoint
from sparklog.cli.command import Command
from sparklog.cli.user_functions import load_function
from tests.checkpoint.conftest import Golden, golden, unpacked
from tests.spark.conftest import environment
from tests.state.conftest import spark

__all__ = ["golden", "spark", "unpacked"]  # the fixtures
Capture = pytest.CaptureFixture[str]
Sparklog = Callable[..., subprocess.CompletedProcess[str]]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (["--with", "module"], "'module' must have the form MODULE:FUNCTION"),
        (["--with", "nowhere:f"], "nowhere:f can't be loaded: No module named 'nowhere'"),
        (["--with", "json:nothing"], "json:nothing can't be loaded"),
        (["--with", "json:__name__"], "json:__name__ is no function"),
        (["--with", "json:loads", "--with", "json:dumps"], "use it once, or with a different NAME"),
        (["--with", "a=json:loads", "--with", "a=json:dumps"], "use it once, or with a different"),
    ],
)
def test_functions(golden: Golden, given: list[str], message: str, capsys: Capture) -> None:
    assert run(["checkpoint", "rewrite", str(golden("hdfs")), "new", *given]) == 2
    assert message in " ".join(capsys.readouterr().err.split())


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (["--query", "orders"], "'--query': 'orders' must have the form MODULE:FUNCTION"),
        (["--query", "json:loads", "--from", "json:x"], "'--from': json:x can't be loaded: module"),
        (["--from", "json:loads"], "Missing option '--query'"),
        (["--query", "json:loads", "--output-mode", "all"], "'all' is not one of 'append'"),
    ],
)
def test_functions_of_a_query(given: list[str], message: str, capsys: Capture) -> None:
    assert run(["checkpoint", "bootstrap", "new", *given]) == 2
    assert message in " ".join(capsys.readouterr().err.split())


def test_messages_of_the_library_have_the_names_of_options() -> None:
    command = checkpoint.commands["bootstrap"]
    assert isinstance(command, Command)
    assert command.spelled("without from_, query must") == "without --from, query must"


def test_an_erasure_needs_a_condition(golden: Golden, capsys: Capture) -> None:
    assert run(["checkpoint", "erase", str(golden("hdfs")), "new"]) == 2
    assert "Missing option '--where'" in capsys.readouterr().err


FAILING = """
import json

def row(rows):
    return rows["key"]

def nested(rows):
    return json.loads(rows)

def silent(rows):
    raise ValueError
"""


def test_a_function_that_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The message has the last line of the user's module; -v logs the traceback."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    module = f"module_{tmp_path.name}"
    (tmp_path / f"{module}.py").write_text(FAILING)
    place = f"failed in {tmp_path}/{module}.py, line"
    with caplog.at_level(logging.INFO, "sparklog"):
        for name, given, message in (
            ("row", {}, f"{module}:row {place} 5: KeyError: 'key'"),
            ("nested", "", f"{module}:nested {place} 8: JSONDecodeError: Expecting value: line 1"),
            ("silent", "", f"{module}:silent {place} 11: ValueError"),
        ):
            function = load_function(f"{module}:{name}", "--with")
            with pytest.raises(click.ClickException) as caught:
                function(given)
            assert caught.value.message.startswith(message)
            assert f"{module}:{name} failed" in caplog.text
    with pytest.raises(click.ClickException, match=r"^json:loads failed in .*line .*TypeError: "):
        load_function("json:loads", "--with")(1)
    with pytest.raises(click.ClickException, match=r"^json:loads failed: TypeError: loads\(\) "):
        load_function("json:loads", "--with")(1, 2)


def test_a_module_that_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    module = f"module_{tmp_path.name}"
    (tmp_path / f"{module}.py").write_text("1 / 0\n")
    with pytest.raises(
        click.BadParameter, match=f"{module}:f can't be loaded: ZeroDivisionError: division"
    ):
        load_function(f"{module}:f", "--with")


def in_process(directory: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Call the command in a process of its own, which starts Spark."""
    command = [sys.executable, "-m", "sparklog", "checkpoint", *words]
    return subprocess.run(
        command, cwd=directory, env=environment(), capture_output=True, text=True, timeout=300
    )


@pytest.fixture
def sparklog(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> Iterator[Sparklog]:
    """Calls the command in this process and its session, which takes a tenth of the time."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))

    def call(*words: str) -> subprocess.CompletedProcess[str]:
        code = run(["checkpoint", *words])
        return subprocess.CompletedProcess(words, code, *capsys.readouterr())

    yield call
    for module in ("corrections", "orders"):
        sys.modules.pop(module, None)


@pytest.mark.spark
@pytest.mark.deep
def test_rewrite_and_diff(golden: Golden, tmp_path: Path, sparklog: Sparklog) -> None:
    (tmp_path / "corrections.py").write_text(
        "def some(frame):\n    return frame.limit(3)\n\ndef all_rows(frame):\n    return frame\n"
    )
    path = str(golden("hdfs"))
    move = ("rewrite", path, "moved", "--provider", "rocksdb", "--partitions", "3")
    done = in_process(tmp_path, *move)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(f"{tmp_path}/moved continues after batch ")
    done = sparklog("diff", path, "moved")
    assert done.returncode == 0, done.stderr
    assert "is equal: " in done.stdout
    done = sparklog("rewrite", path, "some", "--with", "corrections:some", "--json")
    assert done.returncode == 0, done.stderr
    (operator,) = json.loads(done.stdout)["operators"]
    assert sum(operator["rows_after"]) == 3
    done = sparklog("diff", path, "some")
    assert done.returncode == 1, done.stderr
    assert "operator 0, default/default: " in done.stdout
    sides = [f"--with={side}=corrections:all_rows" for side in ("left", "right")]
    done = sparklog("rewrite", str(golden("join")), "joined", *sides)
    assert done.returncode == 0, done.stderr
    done = sparklog("rewrite", path, "some", "--provider", "rocksdb")
    assert done.returncode == 2
    assert f"{tmp_path}/some exists already: choose a new directory" in done.stderr


ORDERS = """
def table(spark):
    spark.conf.set("spark.sql.shuffle.partitions", "2")
    return spark.range(60).selectExpr("id % 10 AS k", "id AS value")

def per_key(rows):
    return rows.groupBy("k").count()
"""


@pytest.mark.spark
@pytest.mark.deep
def test_bootstrap_and_erase(tmp_path: Path, sparklog: Sparklog) -> None:
    (tmp_path / "orders.py").write_text(ORDERS)
    query = ("--query", "orders:per_key", "--from", "orders:table", "--output-mode", "update")
    done = in_process(tmp_path, "bootstrap", "seeded", *query)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(f"{tmp_path}/seeded has the state of the history (10 rows); its ")
    done = sparklog("erase", "seeded", "erased", "--where", "cast(concat('a', key.k) AS int) = 1")
    assert done.returncode == 1
    assert "Error: Spark failed: [CAST_INVALID_INPUT] The value 'a" in done.stderr
    assert "Traceback" not in done.stderr
    where = ("--where", "key.k = 3", "--where", "value.count > 6")
    done = sparklog("erase", "seeded", "erased", *where, "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["rows"] == {"operator 0": [1, 9]}
    assert {path.name for path in tmp_path.iterdir()} - {"__pycache__"} == {
        "erased", "orders.py", "seeded",
    }  # fmt: skip
