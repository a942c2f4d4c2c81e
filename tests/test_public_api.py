"""The public surface: names that users import, and what an import costs."""

import ast
import importlib
import inspect
import pickle
import subprocess
import sys

import pytest
from mypy import api

import sparklog
from sparklog import errors
from tests import public_api
from tests.doc_blocks import pages

METHODS = {
    "create_topic": ["name", "partitions", "config"],
    "alter_topic": ["name", "partitions", "config"],
    "delete_topic": ["name"],
    "topics": [],
    "topic": ["name"],
    "append": ["topic", "data", "partition", "producer"],
    "read": ["topic", "partitions", "start", "end", "isolation", "columns", "follow", "group"],
    "offsets": ["topic"],
    "offsets_for_times": ["topic", "when"],
    "delete_records": ["topic", "offsets"],
    "commits": ["writer"],
    "commit_offsets": ["group", "offsets"],
    "readers": [],
    "delete_reader": ["group", "partitions"],
    "move_partition": ["topic", "partition", "to"],
    "reset_reader": ["group", "to", "topics", "shift_by", "offsets"],
    "groups_at_work": [],
    "commit": ["chunks"],
    "committed": ["identity"],
    "deleted_topics": [],
    "undelete_topic": ["name"],
    "outcome": ["unknown"],
    "stager": ["framing"],
    "offline": [],
    "give_up": ["topic", "partitions"],
    "end_offset_for_epoch": ["topic", "partition", "epoch"],
    "reset": ["writer", "batch"],
    "close": [],
}
KINDS = [k for k in vars(errors).values() if inspect.isclass(k) and issubclass(k, Exception)]


@pytest.mark.parametrize("package", public_api.PACKAGES)
def test_exports_of_a_package(package):
    module = importlib.import_module(package)
    assert module.__all__ == sorted(set(module.__all__))
    assert not [name for name in module.__all__ if name.startswith("_")]
    for name in module.__all__:
        assert getattr(module, name) is not None
    assert set(module.__all__) <= set(dir(module))


@pytest.mark.parametrize(
    "package", ["sparklog", "sparklog.checkpoint", "sparklog.testing", "sparklog.tiered"]
)
def test_type_checkers_see_the_lazy_exports(package):
    """The imports for type checkers and the table for the interpreter name the same modules."""
    module = importlib.import_module(package)
    (branch,) = (
        node for node in ast.parse(inspect.getsource(module)).body if isinstance(node, ast.If)
    )
    seen = {
        alias.name: node.module
        for node in branch.body
        if isinstance(node, ast.ImportFrom) and node.module.startswith("sparklog")
        for alias in node.names
    }
    (call,) = (node for node in ast.walk(branch) if isinstance(node, ast.Call))
    assert ast.literal_eval(call.args[1]) == seen
    assert seen.keys() <= set(module.__all__)


@pytest.mark.deep
def test_mypy_knows_every_export_and_no_other_name(tmp_path):
    code = tmp_path / "user.py"
    names = [name.rpartition(".") for name in public_api.exports()]
    lines = [f"from {p} import {name} as name_{n}" for n, (p, _, name) in enumerate(names)]
    lines += ["import sparklog", "sparklog.Logg", "info: sparklog.TopicInfo = 1"]
    code.write_text("\n".join(lines))
    out, _, _ = api.run(["--strict", "--ignore-missing-imports", "--no-error-summary", str(code)])
    errors = [line for line in out.splitlines() if "user.py" in line]
    assert ['"Logg"' in errors[0], '"TopicInfo"' in errors[1], len(errors)] == [True, True, 2], out


def test_types_in_public_signatures_are_public():
    exported = {id(value) for value in public_api.exports().values()}
    internal = {
        f"{kind.__module__}.{kind.__qualname__} in {place}({name})"
        for place, name, types in public_api.signatures()
        for kind in public_api.types_in(types)
        if id(kind) not in exported
    }
    assert internal == set(), "export them, or change the signature"


def test_times_in_public_signatures_carry_their_unit():
    found = [
        f"{place}({name})"
        for place, name, kind in public_api.signatures()
        if public_api.is_time_without_unit(name, kind)
    ]
    assert found == [], "name them as Kafka does: timeout_ms, retention_ms"


@pytest.mark.parametrize("code", public_api.code_of_pages())
def test_pages_and_examples_use_public_names(code):
    assert public_api.internal_names(code) == []


def test_the_prose_of_pages_names_public_modules():
    found = {
        pages.name_of(page): public_api.internal_names_in_prose(page.read_text())
        for page in pages.PAGES
        if public_api.is_for_users(page) and page.name not in public_api.INTERNAL_PAGES
    }
    assert {page: names for page, names in found.items() if names} == {}


@pytest.mark.parametrize(
    ("code", "found"),
    [
        ("import sparklog.fs", ["sparklog.fs"]),
        ("from sparklog.log.log import Log", ["sparklog.log.log.Log"]),
        ("from sparklog.service import Upkeep", ["sparklog.service.Upkeep"]),
        ("import sparklog\nsparklog.opening.open_log(1)", ["sparklog.opening"]),
        ("import sparklog as s\ns.service.verify(1), s.sink.Nothing", ["sparklog.sink.Nothing"]),
        ("from sparklog import sink\nsink.close(), sink.task", ["sparklog.sink.task"]),
        ("import sparklog\nsparklog.open(1)._home", ["sparklog.open(1)._home"]),
        ("from other import Error\nError._CODE", []),
        ("import sparklog.service\nsparklog.service.verify, sparklog.Log.read, x.__doc__", []),
    ],
)
def test_internal_names_are_found(code, found):
    assert public_api.internal_names(code) == found


def test_internal_names_in_prose_are_found():
    text = "`sparklog.tools.x`, spark.sparklog.state.y, `sparklog.service.verify`, sparklog.yml"
    assert public_api.internal_names_in_prose(text) == ["sparklog.tools.x"]


def test_a_log_has_public_methods_only_of_which_users_know():
    members = {name for name in dir(sparklog.Log) if not name.startswith("_")}
    assert members == METHODS.keys()


@pytest.mark.parametrize("name", sorted(METHODS))
def test_methods_of_a_log(name):
    method = getattr(sparklog.Log, name)
    parameters = list(inspect.signature(method).parameters)[1:]
    assert parameters[: len(METHODS[name])] == METHODS[name]
    assert inspect.getdoc(method), f"Log.{name} has no docstring"


def test_every_error_is_exported_and_in_the_tree():
    for kind in KINDS:
        assert kind.__name__ in sparklog.__all__
        assert kind.__name__ in (errors.__doc__ or "")
        assert issubclass(kind, errors.SparklogError)


@pytest.mark.parametrize("path", [None, "/data/log"])
@pytest.mark.parametrize("kind", KINDS)
def test_errors_survive_pickling(kind, path):
    """Spark carries an executor's errors to the driver as pickles."""
    extra = {
        errors.DataCorruptionError: {"path": "p", "position": 7, "first": 1, "end": 3},
        errors.PartitionOfflineError: {"path": "p", "first": 1, "end": 3},
        errors.OffsetOutOfRangeError: {"offset": 1, "start": 2, "end": 3},
        errors.CommitUnknownError: {"position": 4, "attempt": "a"},
    }.get(kind, {})
    if path is not None or "path" not in extra:
        extra = {**extra, "path": path}
    error = kind("what happened", **extra)
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is kind
    assert (str(again), again.__dict__) == (str(error), error.__dict__)
    assert again.path == extra["path"]
    assert again.retriable == (kind in (
        errors.LogLockedError, errors.StorageUnavailableError, errors.CommitUnknownError
    ))


def test_import_brings_neither_spark_nor_pandas():
    code = (
        "import sys, sparklog; "
        "print(sorted({'pyarrow', 'numpy'} & set(sys.modules)), end=''); "
        "sparklog.Log; "
        "print(sorted({'pyspark', 'py4j', 'pandas', 'fsspec'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[][]"


def test_names_that_come_when_they_are_asked_for():
    assert sparklog.Log is sparklog.log.log.Log
    with pytest.raises(AttributeError, match="no attribute 'Logg'"):
        sparklog.Logg


def test_the_sink_imports_no_more_than_a_sink_needs() -> None:
    """xxhash, for example, is only for Spark's state files."""
    code = "import sys, sparklog.sink; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = set(done.stdout.split())
    assert "sparklog.sink" in loaded
    for name in ("xxhash", "click", "sparklog.checkpoint.verify", "sparklog.tools"):
        assert name not in loaded


def test_an_export_with_the_name_of_a_module() -> None:
    """Whichever is imported first."""
    code = (
        "import sparklog.checkpoint.verify, sparklog.checkpoint.history; "
        "from sparklog import checkpoint as c; "
        "print(callable(c.verify), callable(c.history), callable(c.fork))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["True"] * 3
