"""A description of each command's arguments, shown by `--help` and in docs/cli.md.

Click has help texts for options only.
"""

from typing import Final

_LOG_DIRS: Final = "The directory of the log. Several log dirs are joined by commas."
_LOG: Final = (
    "The directory of the log (several log dirs are joined by commas), or the URL of a log in a "
    "bucket, such as s3://bucket/log."
)
_LOG_OR_ARCHIVE: Final = (
    "The directory of the log (several log dirs are joined by commas), the URL of a log in a "
    "bucket, such as s3://bucket/log, or the URL of an archive (copies of segments in a bucket)."
)
_ALL_LOG_DIRS: Final = "All directories of the log, joined by commas."
_CHECKPOINT: Final = "The query's checkpointLocation."
_OTHER_CHECKPOINT: Final = "The checkpointLocation of the other query."
_ARCHIVE: Final = "The URL of the archive, such as s3://bucket/points."
_COPIES: Final = "The URL of the copies, such as s3://bucket/logs."
_NEW_CHECKPOINT: Final = (
    "The new checkpoint: a directory that does not exist, or a URL without objects."
)

ARGUMENTS: Final = {
    "checkpoint archive": (
        _CHECKPOINT, f"{_ARCHIVE} Each query needs its own URL, which the first call creates.",
    ),
    "checkpoint bootstrap": (_NEW_CHECKPOINT,),
    "checkpoint diff": (_CHECKPOINT, _OTHER_CHECKPOINT),
    "checkpoint erase": (_CHECKPOINT, _NEW_CHECKPOINT),
    "checkpoint export": (_CHECKPOINT,),
    "checkpoint fork": (_CHECKPOINT, _NEW_CHECKPOINT),
    "checkpoint history": (_CHECKPOINT,),
    "checkpoint import": (_CHECKPOINT,),
    "checkpoint points": (_ARCHIVE,),
    "checkpoint rebuild": (_CHECKPOINT, _NEW_CHECKPOINT),
    "checkpoint reset": (_CHECKPOINT,),
    "checkpoint restore": (_ARCHIVE, _NEW_CHECKPOINT),
    "checkpoint rewrite": (_CHECKPOINT, _NEW_CHECKPOINT),
    "checkpoint verify": (_CHECKPOINT,),
    "commits": (_LOG,),
    "configs alter": (_LOG,),
    "configs describe": (_LOG_OR_ARCHIVE,),
    "consume": (_LOG_OR_ARCHIVE,),
    "delete-records": (_LOG,),
    "doctor": ("The location of a checkpoint, to learn whether it would be stored as a log.",),
    "dump-log": (),
    "erase": (_LOG,),
    "export": (_LOG_OR_ARCHIVE,),
    "fork": (_LOG, "The directory or URL of the new log. It must not contain a log."),
    "get-offsets": (_LOG_OR_ARCHIVE,),
    "handover": (_ALL_LOG_DIRS,),
    "import": (f"{_LOG} A log that does not exist is created.",),
    "kafka-users": ("The JSON file of the users. The first --add creates it.",),
    "log-dirs describe": (_LOG_DIRS,),
    "log-dirs move": (_ALL_LOG_DIRS,),
    "metrics": (_LOG,),
    "produce": (
        _LOG, "Files with the records. The default, and the name -, is standard input.",
    ),
    "readers delete": (_LOG,),
    "readers delete-offsets": (_LOG,),
    "readers describe": (_LOG,),
    "readers list": (_LOG,),
    "readers reset": (_LOG,),
    "readers show": (_LOG,),
    "serve": (f"{_LOG_OR_ARCHIVE} An archive requires --read-only.",),
    "status": (_LOG_OR_ARCHIVE,),
    "tier rebuild": (_LOG_DIRS,),
    "tier restore": (_COPIES, "The directory or URL of the new log."),
    "tier rotate": (_COPIES,),
    "tier status": (_LOG_DIRS,),
    "tier verify": (_LOG_OR_ARCHIVE,),
    "topics alter": (_LOG,),
    "topics create": (f"{_LOG} A log that does not exist is created.",),
    "topics delete": (_LOG,),
    "topics describe": (_LOG_OR_ARCHIVE,),
    "topics list": (_LOG_OR_ARCHIVE,),
    "topics undelete": (_LOG,),
    "ui": (_LOG_OR_ARCHIVE,),
    "verify": (_LOG,),
}  # fmt: skip
"""{command: a description of each of its arguments, in their order}"""
