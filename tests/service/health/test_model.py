"""The verdict: the worst first, one order, and the same by every way out."""

import json

from sparklog.service.health import CHECKS, Check, Health, Level
from sparklog.service.health.model import health_samples


def health(*checks: Check) -> Health:
    return Health("/data/log", 1_700_000_000_000, "log", checks)


GREEN = Check("writable", Level.GREEN, "can be written")
AMBER = Check("readers", Level.AMBER, "audit falls <behind>", "sparklog readers /data/log")
RED = Check("partitions", Level.RED, "1 partition (t-0) offline")


def test_the_worst_comes_first() -> None:
    found = health(GREEN, AMBER, RED)
    assert found.level is Level.RED
    assert found.verdict == "1 partition (t-0) offline; audit falls <behind>"
    assert [check.name for check in found.wrong] == ["partitions", "readers"]
    assert health(GREEN, AMBER).level is Level.AMBER
    assert health(GREEN).verdict == "All is well: can be written"
    many = health(*[AMBER] * 5)
    assert many.verdict.endswith("; and 2 more")


def test_all_ways_out_say_the_same() -> None:
    found = health(GREEN, RED, AMBER)
    said = json.loads(json.dumps(found.to_dict()))
    assert (said["level"], said["verdict"]) == ("red", found.verdict)
    assert [one["name"] for one in said["checks"]] == ["writable", "partitions", "readers"]
    assert [(s.labels, s.value) for s in health_samples(found)] == [
        (("writable",), 0), (("partitions",), 2), (("readers",), 1)
    ]  # fmt: skip
    page = found._repr_html_()
    assert "audit falls &lt;behind&gt;" in page
    assert "<code>sparklog readers /data/log</code>" in page
    assert str(found).startswith("red: 1 partition (t-0) offline")
    assert set(CHECKS) >= {one.name for one in found.checks}
