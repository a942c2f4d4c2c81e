"""Rules that compare with hours and days before: promtool plays these through, good and bad.

Minutes are those of promtool's clock, which begins at 0. A case is judged by the recording rules
and the one alert that it is about.
"""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.promtool import RULES

HOUR, DAY = 60, 24 * 60  # in minutes
GIB = 1 << 30
HOST, OTHER = "a:9404", "b:9404"
STORE = "s3://bucket/logs"


class Story:
    """Series by minute, in promtool's notation, and which alerts fire when."""

    def __init__(self, path: Path, judge: str) -> None:
        self._path, self._judge = path, judge
        self._series: list[dict[str, str]] = []

    def series(self, name: str, values: str, instance: str = HOST, **labels: str) -> None:
        """Give a series; `values` as promtool has them: 0+5x60 is 0, 5, ... 300."""
        every = labels | {"job": "sparklog", "instance": instance}
        inside = ",".join(f"{k}={json.dumps(v)}" for k, v in every.items())
        self._series.append({"series": f"{name}{{{inside}}}", "values": values})

    def log(self, minutes: int, path: str = "/data/log", instance: str = HOST, at: int = 0) -> None:
        """Say that a log is scraped there, from minute `at` on."""
        gap = f"_x{at} " if at else ""
        self.series("sparklog_info", f"{gap}1x{minutes}", instance, path=path)

    def ends(
        self, values: str, topic: str = "t", instance: str = HOST, partition: str = "0"
    ) -> None:
        self.series(
            "kafka_log_log_logendoffset", values, instance, topic=topic, partition=partition
        )

    def starts(self, values: str, topic: str = "t", instance: str = HOST) -> None:
        self.series("kafka_log_log_logstartoffset", values, instance, topic=topic, partition="0")

    def fires(self, alert: str | tuple[str, ...], **at: list[dict[str, str]] | bool) -> None:
        """Check at m90=True or m90=[{labels}] and so on; False or []: nothing fires."""
        alerts = (alert,) if isinstance(alert, str) else alert
        checks = []
        for when, wanted in at.items():
            found = [{}] if wanted is True else wanted or []
            what = f'ALERTS{{alertname=~"{"|".join(alerts)}",alertstate="firing"}}'
            names = sorted({name for labels in found for name in labels})
            by = f"group by ({', '.join(names)}) ({what})" if found else what
            expected = [
                {"labels": "{" + ",".join(f'{k}="{v}"' for k, v in one.items()) + "}", "value": 1}
                for one in found
            ]
            checks.append({"expr": by, "eval_time": f"{when[1:]}m", "exp_samples": expected})
        (group,) = yaml.safe_load(RULES.read_text())["groups"]
        group["rules"] = [r for r in group["rules"] if r.get("alert") in (None, *alerts)]
        rules = self._path.with_name("rules.json")
        rules.write_text(json.dumps({"groups": [group]}))
        latest = max(int(when[1:]) for when in at)
        case = {
            "rule_files": [str(rules)],
            "evaluation_interval": "5m" if latest < DAY else "10m",
            "tests": [{"interval": "1m", "input_series": self._series, "promql_expr_test": checks}],
        }
        self._path.write_text(json.dumps(case))
        done = subprocess.run(
            [self._judge, "test", "rules", str(self._path)],
            capture_output=True, text=True, timeout=240,
        )  # fmt: skip
        assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"


@pytest.fixture
def story(tmp_path: Path, judge: str) -> Story:
    return Story(tmp_path / "case.json", judge)


# --- growth --------------------------------------------------------------------------------------


def free(story: Story, values: str, **given: Any) -> None:
    story.series("sparklog_disk_free_bytes", values, logDirectory="/data/log", **given)


def test_a_disk_that_fills_within_hours(story: Story) -> None:
    free(story, f"{100 * GIB}-{GIB // 3}x{4 * HOUR}")  # 20 GiB an hour
    story.fires("SparklogDiskFullInHours", m30=False, m120=[{"logDirectory": "/data/log"}])


def test_a_disk_that_fills_within_days(story: Story) -> None:
    free(story, f"{1000 * GIB}-{GIB // 6}x{2 * DAY}")  # 240 GiB a day
    story.fires("SparklogDiskFullInDays", m1200=False, m2000=[{"logDirectory": "/data/log"}])


@pytest.mark.deep
def test_a_disk_with_room_for_weeks_is_well(story: Story) -> None:
    free(story, f"{10_000 * GIB}-{GIB // 6}x{2 * DAY}")
    story.fires("SparklogDiskFullInDays", m2800=False)
    story.fires("SparklogDiskFullInHours", m2800=False)


@pytest.mark.deep
def test_what_retention_gives_back_each_day_is_no_growth(story: Story) -> None:
    """400 GiB are written between two deletions, and 500 GiB are free after each."""
    day = f"{500 * GIB}-{400 * GIB // DAY}x{DAY - 1}"
    free(story, " ".join([day] * 4))
    when: dict[str, Any] = {f"m{at}": False for at in range(DAY + 60, 4 * DAY, 120)}
    story.fires("SparklogDiskFullInDays", **when)


def test_what_retention_gives_back_each_half_hour_is_no_growth(story: Story) -> None:
    saw = f"{20 * GIB}-{GIB // 2}x29"
    free(story, " ".join([saw] * 12))
    story.fires("SparklogDiskFullInHours", **{f"m{at}": False for at in range(60, 360, 5)})


def test_a_disk_that_was_made_larger_is_well_again(story: Story) -> None:
    free(story, f"{100 * GIB}-{GIB // 3}x119 {2000 * GIB}-{GIB // 3}x120")
    story.fires("SparklogDiskFullInHours", m115=True, m185=False)


def test_an_endpoint_that_is_gone_foretells_nothing(story: Story) -> None:
    free(story, f"{100 * GIB}-{GIB // 3}x60")
    story.fires("SparklogDiskFullInHours", m60=False, m200=False)
    story.fires("SparklogDiskFullInDays", m200=False)


# --- segments ------------------------------------------------------------------------------------


def segments(story: Story, count: int, topic: str = "t", instance: str = HOST) -> None:
    for partition in range(4):
        story.series(
            "kafka_log_log_numlogsegments", f"{count}x180", instance,
            topic=topic, partition=str(partition),
        )  # fmt: skip


def test_a_partition_of_many_segments(story: Story) -> None:
    segments(story, 2000, "well")
    segments(story, 2001, "t")
    where = [{"topic": "t", "partition": str(p)} for p in range(4)]
    story.fires("SparklogPartitionOfManySegments", m30=False, m90=where)
    story.fires("SparklogLogOfManySegments", m90=False)


def test_a_log_of_many_segments_and_another_beside_it(story: Story) -> None:
    for n in range(10):
        segments(story, 800, f"t{n}")
        segments(story, 700, f"t{n}", OTHER)
    story.fires("SparklogPartitionOfManySegments", m90=False)
    story.fires("SparklogLogOfManySegments", m30=False, m90=[{"instance": HOST}])


# --- a stalled end -------------------------------------------------------------------------------

STALL = 2 * DAY + 3 * HOUR  # it ends to grow then
AFTER = f"m{STALL + 90}"


def test_a_topic_that_grew_each_hour_and_stops(story: Story) -> None:
    story.log(4 * DAY)
    story.ends(f"0+7x{STALL} {7 * STALL}x{2 * DAY}", "t")
    story.ends(f"0+7x{4 * DAY}", "well")
    story.fires(
        "SparklogTopicStalled",
        **{f"m{STALL - 10}": False, f"m{STALL + 50}": False},
        **{AFTER: [{"topic": "t", "log": f"{HOST} /data/log"}]},
        **{f"m{STALL + DAY}": True, f"m{STALL + DAY + 4 * HOUR}": False},  # it is done, then
    )


@pytest.mark.deep
def test_a_topic_that_is_done_since_long_is_well(story: Story) -> None:
    story.log(3 * DAY)
    story.ends(f"1000x{3 * DAY}")
    story.fires("SparklogTopicStalled", **{f"m{at}": False for at in range(0, 3 * DAY, 300)})


@pytest.mark.deep
def test_a_topic_that_sleeps_at_night_is_well(story: Story) -> None:
    """Twelve hours at work, twelve at rest."""
    story.log(5 * DAY)
    day = [f"{7 * 720 * n}+7x719 {7 * 720 * (n + 1)}x719" for n in range(5)]
    story.ends(" ".join(day))
    story.fires("SparklogTopicStalled", **{f"m{at}": False for at in range(0, 5 * DAY, 120)})


@pytest.mark.deep
def test_a_topic_that_is_quiet_now_and_then_is_well(story: Story) -> None:
    """For three hours a day, at another time each."""
    story.log(4 * DAY)
    grown, parts = 0, []
    for day, hour in enumerate((2, 8, 19)):
        for minutes, step in ((hour * HOUR, 7), (3 * HOUR, 0), (DAY - (hour + 3) * HOUR, 7)):
            parts.append(f"{grown}+{step}x{minutes - 1}")
            grown += step * minutes
        assert len(parts) == 3 * (day + 1)
    story.ends(" ".join(parts))
    at = range(2 * DAY + 19 * HOUR, 2 * DAY + 22 * HOUR, 20)
    story.fires("SparklogTopicStalled", **{f"m{minute}": False for minute in at})


def test_a_topic_that_was_filled_once_for_some_hours_is_well(story: Story) -> None:
    story.log(3 * DAY)
    story.ends(f"0+7x{3 * HOUR} {7 * 3 * HOUR}x{2 * DAY}")
    at = range(3 * HOUR, 2 * DAY, 30)
    story.fires("SparklogTopicStalled", **{f"m{minute}": False for minute in at})


@pytest.mark.deep
def test_a_topic_that_rests_at_weekends_is_well_from_the_second_on(story: Story) -> None:
    """Five days at work, two at rest; the first time nobody can know."""
    story.log(14 * DAY)
    work, rest = 5 * DAY, 2 * DAY
    story.ends(
        f"0+7x{work - 1} {7 * work}x{rest - 1} {7 * work}+7x{work - 1} {14 * work}x{rest - 1}"
    )
    at = range(12 * DAY, 14 * DAY, 120)
    story.fires("SparklogTopicStalled", **{f"m{minute}": False for minute in at})


@pytest.mark.deep
def test_a_topic_that_is_written_once_a_day_and_stops(story: Story) -> None:
    story.log(11 * DAY)
    days = [f"{100 * n}x{DAY - 1}" for n in range(8)]
    story.ends(" ".join(days) + f" 700x{3 * DAY}")
    story.fires(
        "SparklogTopicStalled",
        **{f"m{8 * DAY - 30}": False, f"m{8 * DAY + 30}": True, f"m{10 * DAY + 60}": False},
    )


def test_a_topic_that_is_deleted_or_made_anew_is_not_stalled(story: Story) -> None:
    story.log(4 * DAY)
    story.ends(f"0+7x{STALL}", "gone")
    story.ends(f"0+7x{STALL} 0+7x{DAY}", "anew")
    story.fires("SparklogTopicStalled", **{AFTER: False, f"m{STALL + 20 * HOUR}": False})


def test_a_stall_while_a_log_in_a_store_moves_to_another_host(story: Story) -> None:
    moves = DAY + HOUR
    story.log(moves, STORE)
    story.log(3 * DAY, STORE, OTHER, at=moves)
    story.ends(f"0+7x{moves}")
    story.ends(f"_x{moves} {7 * moves}+7x{STALL - moves} {7 * STALL}x{DAY}", instance=OTHER)
    story.fires(
        "SparklogTopicStalled",
        **{f"m{moves + 90}": False, AFTER: [{"topic": "t", "log": STORE}]},
    )


def test_two_hosts_with_a_log_at_the_same_path_are_two_logs(story: Story) -> None:
    for host in (HOST, OTHER):
        story.log(3 * DAY, instance=host)
    story.ends(f"0+7x{STALL} {7 * STALL}x{DAY}")
    story.ends(f"0+7x{3 * DAY}", instance=OTHER)
    story.fires("SparklogTopicStalled", **{AFTER: [{"log": f"{HOST} /data/log"}]})


@pytest.mark.deep
def test_an_endpoint_that_was_away_is_no_stall(story: Story) -> None:
    """For half a day nobody was scraped; the topic grew meanwhile, and goes on."""
    away = 12 * HOUR
    story.log(5 * DAY)
    story.ends(f"0+7x{STALL} _x{away} {7 * (STALL + away)}+7x{DAY}")
    at = range(STALL, STALL + away + DAY - 60, 60)
    story.fires("SparklogTopicStalled", **{f"m{minute}": False for minute in at})


# --- a log start that jumps ----------------------------------------------------------------------


def reader(story: Story, values: str, group: str = "g", **given: Any) -> None:
    story.series(
        "sparklog_reader_offset", values, group=group, kind="group", topic="t", partition="0",
        **given,
    )  # fmt: skip


def test_a_log_start_that_passes_a_reader(story: Story) -> None:
    story.log(3 * DAY)
    story.starts(f"0x99 5000x{2 * DAY}")
    story.ends(f"9000x{3 * DAY}")
    reader(story, f"3000x{3 * DAY}", "slow")
    reader(story, f"7000x{3 * DAY}", "quick")
    story.fires(
        "SparklogReaderLostRecords",
        m95=False,
        m110=[{"group": "slow", "topic": "t", "log": f"{HOST} /data/log"}],
        **{f"m{DAY + 200}": False},  # it was told for a day
    )


def test_a_reader_that_goes_on_behind_the_log_start_is_well_again(story: Story) -> None:
    story.log(300)
    story.starts("0x99 5000x200")
    story.ends("9000x300")
    reader(story, "3000x119 5100+10x180")
    story.fires("SparklogReaderLostRecords", m115=True, m130=False)


def test_a_reader_of_a_topic_that_was_deleted_lost_nothing(story: Story) -> None:
    story.log(300)
    story.starts("0x99")
    story.ends("9000x99")
    reader(story, "3000x300")
    story.fires("SparklogReaderLostRecords", m90=False, m120=False, m250=False)


def test_a_reader_of_another_log_with_the_same_topic_lost_nothing(story: Story) -> None:
    for host in (HOST, OTHER):
        story.log(300, instance=host)
    story.starts("0x99 5000x200")
    story.starts("0x300", instance=OTHER)
    reader(story, "3000x300", instance=OTHER)
    story.fires("SparklogReaderLostRecords", m120=False)


@pytest.mark.deep
def test_a_log_start_that_jumps_without_retention(story: Story) -> None:
    story.log(300)
    story.starts("0x99 8000x200")
    story.ends("9000x300")
    story.fires(
        "SparklogLogStartJumped",
        m95=False, m105=[{"topic": "t", "partition": "0"}], m130=False,
    )  # fmt: skip


@pytest.mark.parametrize("counter", ["5x99 9x200", "_x100 9x200", "5x99 2x200"])
def test_a_log_start_that_retention_raises_is_well(story: Story, counter: str) -> None:
    """Its counter rises, begins, or begins anew with another process."""
    story.log(300)
    story.starts("0x99 8000x200")
    story.ends("9000x300")
    story.series("sparklog_service_deleted_segments_total", counter, rule="retention.ms")
    story.fires("SparklogLogStartJumped", **{f"m{at}": False for at in range(90, 130, 5)})


def test_retention_of_another_log_excuses_nothing(story: Story) -> None:
    for host in (HOST, OTHER):
        story.log(300, instance=host)
    story.starts("0x99 8000x200")
    story.ends("9000x300")
    story.series(
        "sparklog_service_deleted_segments_total", "5x99 9x200", OTHER, rule="retention.ms"
    )
    story.series("sparklog_service_deleted_segments_total", "5x99 9x200", rule="log start")
    story.fires("SparklogLogStartJumped", m105=True)


@pytest.mark.deep
@pytest.mark.parametrize("start", ["0x99 900x200", "0+40x300", "0x99 _x200"])
def test_small_steps_and_topics_that_go_are_no_jump(story: Story, start: str) -> None:
    story.log(300)
    story.starts(start)
    story.ends("9000+40x300" if "+" in start else "9000x300")
    story.fires("SparklogLogStartJumped", **{f"m{at}": False for at in range(90, 130, 5)})


def test_a_small_partition_may_jump(story: Story) -> None:
    story.log(300)
    story.starts("0x99 900x200")
    story.ends("950x300")
    story.fires("SparklogLogStartJumped", m105=False)


# --- the verdict ---------------------------------------------------------------------------------


def test_a_verdict_that_is_red_or_long_amber(story: Story) -> None:
    for check, values in (("writable", "0x59 2x300"), ("disk", "1x400"), ("readers", "0x400")):
        story.series("sparklog_health", values, check=check)
    story.series("sparklog_health", "0x400", OTHER, check="writable")
    story.fires("SparklogUnhealthy", m60=False, m75=[{"check": "writable", "instance": HOST}])
    story.fires("SparklogAiling", m60=False, m130=[{"check": "disk"}])


def test_a_verdict_that_another_alert_tells_already_is_not_told_twice(story: Story) -> None:
    for host in (HOST, OTHER):
        story.series("sparklog_health", "2x300", host, check="service")
    story.series("sparklog_service_dead_threads", "1x300", work="clean")
    both = ("SparklogUnhealthy", "SparklogServiceThreadDied")
    story.fires(both, m30=[{"alertname": both[0], "instance": OTHER},
                           {"alertname": both[1], "instance": HOST}])  # fmt: skip
