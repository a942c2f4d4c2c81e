"""Test tools for sparklog, and for other implementations of homes, stores and file systems.

- `contracts`: contract tests of `FileSystem` and `Store`; `home_contract`, `commits_contract`,
`groups_contract`, `lease_contract`, `view_contract`, `segments_contract`, `segment_store_contract`:
contract tests of a log's home; `arguments_contract`: invalid arguments of a log in any home
- `crashfs`: a file system that loses power, on `disk`; `faults`: faults to inject;
`crashes`: all crashes that a piece of work can meet
- `faultstore`: an object store that fails like real stores
- `schedules`: processes that take turns, by a seed; `scheduled_store`: an unreliable store that
they share
- `strategies`: Hypothesis strategies of tables, topics, configs; `trees`: directory trees
"""

from typing import TYPE_CHECKING

from sparklog.lazy_exports import lazy_exports

if TYPE_CHECKING:
    from sparklog.clock import ManualClock
    from sparklog.fs import LOCAL, File, FileSystem, LockFile, Mapping, Volume
    from sparklog.testing.contracts import FileSystemContract, StoreContract
    from sparklog.testing.crashes import Crash, every_crash
    from sparklog.testing.crashfs import CrashFS
    from sparklog.testing.faults import Call, Fault, SimulatedKill
    from sparklog.testing.faultstore import Bucket, Faults, FaultStore, Late, Pending
    from sparklog.testing.home_contract import HomeContract
    from sparklog.testing.strategies import (
        blobs,
        headers,
        records,
        tables,
        timestamps,
        to_table,
        topic_configs,
        topic_names,
    )
else:
    __getattr__, __dir__ = lazy_exports(
        __name__,
        {
            "Bucket": "sparklog.testing.faultstore",
            "Call": "sparklog.testing.faults",
            "Crash": "sparklog.testing.crashes",
            "CrashFS": "sparklog.testing.crashfs",
            "Fault": "sparklog.testing.faults",
            "FaultStore": "sparklog.testing.faultstore",
            "Faults": "sparklog.testing.faultstore",
            "File": "sparklog.fs",
            "FileSystem": "sparklog.fs",
            "FileSystemContract": "sparklog.testing.contracts",
            "HomeContract": "sparklog.testing.home_contract",
            "LOCAL": "sparklog.fs",
            "Late": "sparklog.testing.faultstore",
            "LockFile": "sparklog.fs",
            "ManualClock": "sparklog.clock",
            "Mapping": "sparklog.fs",
            "Pending": "sparklog.testing.faultstore",
            "SimulatedKill": "sparklog.testing.faults",
            "StoreContract": "sparklog.testing.contracts",
            "Volume": "sparklog.fs",
            "blobs": "sparklog.testing.strategies",
            "every_crash": "sparklog.testing.crashes",
            "headers": "sparklog.testing.strategies",
            "records": "sparklog.testing.strategies",
            "tables": "sparklog.testing.strategies",
            "timestamps": "sparklog.testing.strategies",
            "to_table": "sparklog.testing.strategies",
            "topic_configs": "sparklog.testing.strategies",
            "topic_names": "sparklog.testing.strategies",
        },
    )

__all__ = [
    "Bucket",
    "Call",
    "Crash",
    "CrashFS",
    "Fault",
    "FaultStore",
    "Faults",
    "File",
    "FileSystem",
    "FileSystemContract",
    "HomeContract",
    "LOCAL",
    "Late",
    "LockFile",
    "ManualClock",
    "Mapping",
    "Pending",
    "SimulatedKill",
    "StoreContract",
    "Volume",
    "blobs",
    "every_crash",
    "headers",
    "records",
    "tables",
    "timestamps",
    "to_table",
    "topic_configs",
    "topic_names",
]
