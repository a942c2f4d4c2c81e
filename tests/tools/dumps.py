"""Our dump and that of Kafka's tool side by side."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from sparklog.errors import SparklogError
from sparklog.tools.dump.dump_log import Dump, DumpOptions
from tests.oracle import Oracle, OracleError

SUFFIXES = (".log", ".index", ".timeindex", ".txnindex", ".snapshot")
_NAMES = {"key_decoder": "key-decoder-class", "value_decoder": "value-decoder-class"}


def files_of(directory: Path) -> list[Path]:
    """What the tool knows of a partition."""
    return sorted(path for path in directory.iterdir() if path.suffix in SUFFIXES)


def ours(files: Sequence[Path | str], **options: Any) -> tuple[str, str, SparklogError | None]:
    """Stdout, stderr and what the dump ended with."""
    texts: dict[bool, list[bytes]] = {False: [], True: []}
    failure = None
    try:
        for text, is_error in Dump([str(f) for f in files], DumpOptions(**options)).lines():
            texts[is_error].append(text)
    except SparklogError as error:
        failure = error
    return b"".join(texts[False]).decode(), b"".join(texts[True]).decode(), failure


def theirs(oracle: Oracle, files: Sequence[Path | str], **options: Any) -> tuple[str, str] | None:
    """Stdout and stderr of Kafka's tool; None if it ended with an exception."""
    arguments = ["--files", ",".join(str(f) for f in files)]
    for name, value in options.items():
        arguments.append(f"--{_NAMES.get(name, name.replace('_', '-'))}")
        if value is not True:
            arguments.append(str(value))
    try:
        answer = oracle.call("dump", args=arguments)
    except OracleError:
        return None
    return (answer["out"], answer["err"]) if answer["status"] == 0 else None


def assert_same(oracle: Oracle, files: Sequence[Path | str], **options: Any) -> str:
    """Both print the same, or both fail; return what was printed, "" after a failure."""
    out, err, failure = ours(files, **options)
    expected = theirs(oracle, files, **options)
    if expected is None:
        assert failure is not None, f"Kafka's tool fails here: {out}"
        assert "\n" not in str(failure)
        return ""
    assert failure is None, failure
    assert (out, err) == expected
    return out + err
