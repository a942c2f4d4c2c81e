"""An example of each command, shown by `--help` and in docs/cli.md; a test parses each.

All examples use the same scenario: a log at /data/log, its topic orders, a query's checkpoint at
/data/checkpoint, and a bucket at s3://bucket.
"""

from typing import Final

EXAMPLES: Final = {
    "checkpoint archive": "/data/checkpoint s3://bucket/points --log /data/log",
    "checkpoint export": "/data/checkpoint",
    "checkpoint fork": "/data/checkpoint /data/try --to 2 --log /data/log --new-log /data/try-log",
    "checkpoint history": "/data/checkpoint",
    "checkpoint import": "/data/checkpoint",
    "checkpoint points": "s3://bucket/points",
    "checkpoint reset": "/data/checkpoint --to 2 --log /data/log --dry-run",
    "checkpoint restore": "s3://bucket/points /data/back --log /data/back-log",
    "checkpoint verify": "/data/checkpoint",
    "commits": "/data/log --topic orders --last 5",
    "configs alter": "/data/log --topic orders --add-config retention.ms=604800000",
    "configs describe": "/data/log --topic orders",
    "consume": "/data/log --topic orders --from-beginning --property print.key=true",
    "delete-records": "/data/log --offset orders:0:5000",
    "dump-log": "--files /data/log/orders-0/00000000000000000000.log --print-data-log",
    "erase": "/data/log --topic orders --key customer-17 --dry-run",
    "export": "/data/log --topic orders --to /data/copy",
    "fork": "/data/log /data/try-log --time 2013-07-03T14:00Z",
    "get-offsets": "/data/log --topic orders --time 2013-07-03T14:00Z",
    "handover": "/data/log --check",
    "import": "/data/log --topic orders --bootstrap-server localhost:9092",
    "kafka-users": "/etc/sparklog/users.json --add loader --rights read,write",
    "log-dirs describe": "/data/log --topic-list orders",
    "log-dirs move": "/data/log,/disk2/log --topic orders --partition 0 --to /disk2/log",
    "metrics": "/data/log --table",
    "produce": "/data/log --topic orders --property parse.key=true < orders.txt",
    "readers delete": "/data/log --group audit",
    "readers delete-offsets": "/data/log --group audit --topic orders",
    "readers describe": "/data/log --group audit",
    "readers list": "/data/log",
    "readers reset": "/data/log --group audit --topic orders --to-earliest --dry-run",
    "readers show": "/data/log",
    "serve": "/data/log --kafka 9092 --metrics-port 9404",
    "spark-conf": ">> $SPARK_HOME/conf/spark-defaults.conf",
    "status": "/data/log",
    "tier rebuild": "/data/log",
    "tier restore": "s3://bucket/logs /data/back --topic orders --start 2013-07-01",
    "tier rotate": "s3://bucket/logs --keyring /etc/sparklog/keys.json",
    "tier status": "/data/log",
    "tier verify": "/data/log --deep",
    "topics alter": "/data/log --topic orders --partitions 8",
    "topics create": "/data/log --topic orders --partitions 4 --config retention.ms=604800000",
    "topics delete": "/data/log --topic orders",
    "topics describe": "/data/log --topic orders",
    "topics list": "/data/log",
    "topics undelete": "/data/log --topic orders",
    "ui": "/data/log",
    "verify": "/data/log",
}
"""{command: arguments of its example}"""


def example(words: str) -> str | None:
    """Return the example of a command, or None for a group of commands."""
    behind = EXAMPLES.get(words)
    return None if behind is None else f"sparklog {words} {behind}"
