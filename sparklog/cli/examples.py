"""Examples of each command, shown by `--help` and in docs/cli.md; a test parses each.

All examples use the same scenario: a log at /data/log, its topic orders, a query's checkpoint at
/data/checkpoint, and a bucket at s3://bucket.
"""

from typing import Final

EXAMPLES: Final = {
    "checkpoint archive": (
        "/data/checkpoint s3://bucket/points --log /data/log",
        "/data/checkpoint s3://bucket/points --batch 41 --keyring /etc/sparklog/keys.json",
    ),
    "checkpoint bootstrap": (
        "/data/seeded --query orders:per_customer",
        "/data/seeded --query orders:per_customer --from orders:table --output-mode update",
    ),
    "checkpoint diff": ("/data/checkpoint /data/try", "/data/checkpoint /data/try --batch 41"),
    "checkpoint erase": (
        "/data/checkpoint /data/erased --where 'key.customer = 17' --dry-run",
        "/data/checkpoint /data/erased --where 'value.customer = 17' --archive s3://bucket/points",
    ),
    "checkpoint export": ("/data/checkpoint",),
    "checkpoint fork": (
        "/data/checkpoint /data/try --to 2 --log /data/log --new-log /data/try-log",
        "/data/checkpoint /data/try --to 2013-07-03T14:00Z --source 0=/data/in",
    ),
    "checkpoint history": ("/data/checkpoint", "/data/checkpoint --json"),
    "checkpoint import": ("/data/checkpoint",),
    "checkpoint points": ("s3://bucket/points",),
    "checkpoint rebuild": (
        "/data/checkpoint /data/rebuilt --query orders:per_customer --output-mode update",
    ),
    "checkpoint reset": (
        "/data/checkpoint --to 2 --log /data/log --dry-run",
        "/data/checkpoint --to 2013-07-03T14:00Z --log /data/log",
        """/data/checkpoint --to '{"orders": {"0": 123}}' --sink other""",
    ),
    "checkpoint restore": (
        "s3://bucket/points /data/back --log /data/back-log",
        "s3://bucket/points /data/back --batch 41",
    ),
    "checkpoint rewrite": (
        "/data/checkpoint /data/moved --provider rocksdb --partitions 400",
        "/data/checkpoint /data/corrected --with corrections:without_test_orders --dry-run",
        "/data/checkpoint /data/changed --template /data/scratch --with changes:with_maximum",
    ),
    "checkpoint verify": ("/data/checkpoint", "/data/checkpoint --repair"),
    "commits": ("/data/log --topic orders --last 5", "/data/log --writer loader --json"),
    "configs alter": (
        "/data/log --topic orders --add-config retention.ms=604800000",
        "/data/log --topic orders --add-config cleanup.policy=[compact,delete]",
        "/data/log --topic orders --delete-config retention.ms",
    ),
    "configs describe": ("/data/log --topic orders", "/data/log --topic orders --all"),
    "consume": (
        "/data/log --topic orders --from-beginning --property print.key=true",
        "/data/log --topic orders --partition 0 --offset -10 --json",
        "s3://bucket/log --topic orders --follow --key-regex ^customer-",
    ),
    "delete-records": (
        "/data/log --offset orders:0:5000",
        "/data/log --offset orders:0:-1 --offset orders:1:-1",
    ),
    "doctor": (
        "/data/checkpoint", "--spark-conf >> $SPARK_HOME/conf/spark-defaults.conf",
        "--spark-conf --jar /data/sparklog.jar --args",
    ),
    "dump-log": (
        "--files /data/log/orders-0/00000000000000000000.log --print-data-log",
        "--files /data/log/orders-0/00000000000000000000.index --index-sanity-check",
    ),
    "erase": (
        "/data/log --topic orders --key customer-17 --dry-run",
        "/data/log --topic orders --key-file /etc/sparklog/keys.txt --json > proof.json",
    ),
    "export": (
        "/data/log --topic orders --to /data/copy",
        "/data/log --topic orders --to-kafka localhost:9092 --create --from-time 2013-07-01",
        "/data/log --all --to s3://bucket/log",
    ),
    "fork": (
        "/data/log /data/try-log --time 2013-07-03T14:00Z",
        "/data/log /data/try-log --writer loader --batch 41",
    ),
    "get-offsets": (
        "/data/log --topic orders",
        "/data/log --topic orders --time 2013-07-03T14:00Z",
        "/data/log --topic-partitions orders:0-2,returns --time earliest",
    ),
    "handover": (
        "/data/log --check",
        "/data/log --properties server.properties --groups groups.csv",
        "/data/log --into /kafka/data --topic orders",
    ),
    "import": (
        "/data/log --topic orders --bootstrap-server localhost:9092",
        "/data/log --topic orders --bootstrap-server kafka:9093 --command-config client.properties",
    ),
    "kafka-users": (
        "/etc/sparklog/users.json",
        "/etc/sparklog/users.json --add loader --rights read,write",
        "/etc/sparklog/users.json --alter loader --password",
    ),
    "log-dirs describe": ("/data/log --topic-list orders",),
    "log-dirs move": ("/data/log,/disk2/log --topic orders --partition 0 --to /disk2/log",),
    "metrics": ("/data/log --table", "--alert-rules > sparklog.yml", "--dashboard > sparklog.json"),
    "produce": (
        "/data/log --topic orders --property parse.key=true < orders.txt",
        "/data/log orders.csv --topic orders --format csv --create 4",
        "/data/log day.parquet --topic orders --format parquet --writer loader --batch 41",
    ),
    "readers delete": ("/data/log --group audit",),
    "readers delete-offsets": (
        "/data/log --group audit --topic orders",
        "/data/log --group audit --topic orders:0,1",
    ),
    "readers describe": (
        "/data/log --group audit", "/data/log --group audit --members --verbose",
    ),
    "readers list": ("/data/log", "/data/log --state Stable,Empty"),
    "readers reset": (
        "/data/log --group audit --topic orders --to-earliest --dry-run",
        "/data/log --group audit --topic orders:0 --to-offset 500 --execute",
        "/data/log --group audit --all-topics --by-duration PT1H --execute",
    ),
    "readers show": ("/data/log", "/data/log --topic orders"),
    "serve": (
        "/data/log --kafka 9092 --metrics-port 9404",
        "/data/log --remote s3://bucket/logs --option log.retention.hours=24",
        "/data/log --once --task compact --topic orders",
    ),
    "status": ("/data/log", "/data/log --fail-on amber --json", "/data/log --watch 10"),
    "tier rebuild": ("/data/log", "/data/log --remote s3://bucket/logs"),
    "tier restore": (
        "s3://bucket/logs /data/back",
        "s3://bucket/logs /data/back --topic orders --start 2013-07-01",
    ),
    "tier rotate": ("s3://bucket/logs --keyring /etc/sparklog/keys.json",),
    "tier status": ("/data/log", "/data/log --keys"),
    "tier verify": ("/data/log --deep", "s3://bucket/logs"),
    "topics alter": (
        "/data/log --topic orders --partitions 8",
        "/data/log --topic orders --config retention.ms=604800000",
    ),
    "topics create": (
        "/data/log --topic orders --partitions 4 --config retention.ms=604800000",
        "s3://bucket/log --topic orders --if-not-exists",
    ),
    "topics delete": ("/data/log --topic orders", "/data/log --topic orders --now"),
    "topics describe": ("/data/log --topic orders", "/data/log --unavailable-partitions"),
    "topics list": ("/data/log", "/data/log --topic 'orders.*'", "/data/log --deleted"),
    "topics undelete": ("/data/log --topic orders", "/data/log --topic orders --as orders-old"),
    "ui": ("/data/log", "/data/log --export report.html"),
    "verify": (
        "/data/log",
        "/data/log --repair --dry-run",
        "/data/log,/disk2/log --give-up --topic orders --dry-run",
    ),
}  # fmt: skip
"""{command: arguments of its examples}"""


def examples(words: str) -> list[str]:
    """Return the examples of a command; a group of commands has none."""
    return [f"sparklog {words} {arguments}" for arguments in EXAMPLES.get(words, ())]
