"""Brings log dirs and partitions back online, recovered as after a crash.

A copy that ends before the ledger's end is damaged, and stays offline.
Source: PROTOCOL, "Offline partitions".
"""

import logging
from typing import Final

from sparklog.errors import InvalidRequestError, LogLockedError, PartitionOfflineError
from sparklog.logdir.broker_lockout import lock_out_brokers, mark_open
from sparklog.logdir.log_dirs import claim_dirs, find_dirs
from sparklog.logdir.log_manager import LogManager
from sparklog.logdir.offline_partitions import exclude_broker_dirs
from sparklog.logdir.recovery.redo import redo_all
from sparklog.logdir.recovery.single_partition import recover_partition, recovery_points

_LOGGER: Final = logging.getLogger(__name__)


def restore_returned(manager: LogManager) -> None:
    """Bring offline partitions with available files back online, for all sessions.

    Under the lock. Cost: some stats per missing partition.
    """
    offline, state = manager.offline, manager.state
    dropped = [key for key in offline if key not in state.ends]
    for key in dropped:
        del offline[key]
    keys = [key for key, error in offline.items() if isinstance(error, PartitionOfflineError)]
    if not keys:
        return
    returned = _returned(manager)
    back = []
    for key in keys:
        error = manager.offline.missing(manager.state, key)
        if error is None:
            back.append(key)
        elif str(error) != str(offline[key]):
            offline[key] = error
    for key in back:
        del offline[key]
        recover_partition(manager, key, recovery_points(manager))
        if key not in offline:
            _LOGGER.warning("%s-%d is online again", *key)
    if returned:
        redo_all(manager, None)
    if returned or back:
        manager.idle()


def _returned(manager: LogManager) -> bool:
    """Find available log dirs again; use log dirs that were absent before, as an open would.

    Returns True if any log dir came back.
    """
    fs, before = manager.fs, manager.offline.dirs
    try:
        found = find_dirs(fs, manager.directories)
    except InvalidRequestError as error:  # another directory is there now
        _LOGGER.warning("%s: %s", manager.home, error)
        return False
    returned = before.absent.keys() - found.absent.keys()
    if not returned:
        manager.offline.dirs = found
        return False
    for number in sorted(returned):
        path = manager.directories[number]
        try:
            # A broker may have been started on the disk while it was away.
            manager.brokers_out += lock_out_brokers(fs, [path])
        except LogLockedError as error:
            found.absent[number] = str(error)
            continue
        exclude_broker_dirs(fs, found)
        if number not in found.absent:
            mark_open(fs, [path])
    manager.offline.dirs = claim_dirs(fs, found)
    return bool(returned - found.absent.keys())
