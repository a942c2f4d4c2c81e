"""The README's tables are the code's: `python -m tests.test_readme` writes them anew."""

import re
from pathlib import Path

from sparklog.config import KEYS, LOG_KEYS
from sparklog.configdef import markdown
from sparklog.service.options import SERVICE_KEYS
from sparklog.sink import options as sink
from sparklog.source import options as source
from sparklog.source.state_options import STATE_OPTIONS
from sparklog.tiered.options import REMOTE_KEYS

README = Path(__file__).parent.parent / "README.md"
_BLOCK = re.compile(r"(<!-- generated[^\n]*-->\n)(.*?)(<!-- end -->)", re.DOTALL)


def _refused(entries: dict[str, str]) -> str:
    rows = "".join(f"| `{name}` | {why} |\n" for name, why in entries.items())
    return f"| refused | because |\n|--|--|\n{rows}"


def _tables() -> str:
    parts = [
        ("The source: `spark.read` and `spark.readStream`", markdown(source.OPTIONS.values())),
        ("Refused by the source, and every other `kafka.*`", _refused(source.REFUSED)),
        (
            "The source on a checkpoint's state: with `stateOperator`",
            markdown(STATE_OPTIONS.values()),
        ),
        ("The sink: `SegmentSink`, `df.write`, `df.writeStream`", markdown(sink.OPTIONS.values())),
        ("Refused by the sink, and every other `kafka.*`", _refused(sink.REFUSED)),
        ("Topic configs", markdown(KEYS.values())),
        ("The log: `sparklog.open(..., options={...})`", markdown(LOG_KEYS.values())),
        (
            "Reading remote segments: `sparklog.open(..., options={...})`",
            markdown(REMOTE_KEYS.values()),
        ),
        ("The service: `Service(..., options={...})`", markdown(SERVICE_KEYS.values())),
    ]
    return "\n".join(
        f"<details><summary>{title}</summary>\n\n{table}\n</details>\n" for title, table in parts
    )


def test_the_tables_are_the_codes() -> None:
    found = _BLOCK.search(README.read_text())
    assert found is not None
    assert found[2] == _tables()


def test_every_file_that_the_readme_names_exists() -> None:
    text = _BLOCK.sub("", README.read_text())
    named = re.findall(r"`((?:tests|sparklog|examples)/[\w./*]+)`", text)
    assert named
    for name in named:
        assert list(README.parent.glob(name)), name


if __name__ == "__main__":
    README.write_text(_BLOCK.sub(lambda m: m[1] + _tables() + m[3], README.read_text()))
