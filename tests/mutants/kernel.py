"""Bugs in what reaches the real disk, which a simulated one can't show."""

from tests.mutants.mutant import Mutant, mutant

SYNCS = "kernel/test_syncs.py::"
FILE_SYSTEMS = "kernel/test_file_systems.py::"
SCALA = "jvm/scala/checkpoint/"


def _python(name: str, file: str, old: str, new: str, *operations: str) -> Mutant:
    return mutant(name, file, old, new, *(f"{SYNCS}test_python[{o}]" for o in operations))


def _scala(name: str, file: str, old: str, new: str, operation: str) -> Mutant:
    return mutant(name, SCALA + file, old, new, f"{SYNCS}test_jvm[{operation}]")


MUTANTS = (
    _python(
        "file-not-synced-by-the-kernel",
        "fs/files.py",
        "            os.fdatasync(fd)\n",
        "            os.fstat(fd)\n",
        "log-dir-commit",
    ),
    _python(
        "directory-not-synced-by-the-kernel",
        "fs/local.py",
        "                os.fsync(fd)\n",
        "                os.fstat(fd)\n",
        "log-dir-topic",
    ),
    _scala(
        "jvm-checkpoint-record-not-forced",
        "Durable.scala",
        "    def written(channel: FileChannel): Unit = channel.force(false)\n",
        "    def written(channel: FileChannel): Unit = ()\n",
        "jvm-write",
    ),
    _scala(
        "jvm-files-and-directories-not-forced",
        "Durable.scala",
        "    try channel.force(true)\n",
        "    try channel.size()\n",
        "jvm-first-write",
    ),
    _scala(
        "jvm-directory-not-synced-after-a-rename",
        "Durable.scala",
        "StandardCopyOption.REPLACE_EXISTING)\n    sync(to.getParent)\n",
        "StandardCopyOption.REPLACE_EXISTING)\n",
        "jvm-replace",
    ),
    _scala(
        "jvm-renamed-before-it-is-synced",
        "Durable.scala",
        "    sync(next)\n    rename(next, path)\n",
        "    rename(next, path)\n    sync(path)\n",
        "jvm-replace",
    ),
    _scala(
        "jvm-new-directory-not-synced",
        "Durable.scala",
        "    Files.createDirectories(path)\n    sync(path.getParent)\n",
        "    Files.createDirectories(path)\n",
        "jvm-directory",
    ),
    _scala(
        "jvm-checksum-of-a-snapshot-not-synced",
        "Durable.scala",
        'Seq(file, file.resolveSibling(s".${file.getFileName}.crc"))',
        "Seq(file)",
        "jvm-snapshot",
    ),
    _scala(
        "jvm-cleaned-segment-not-forced",
        "Partition.scala",
        "        out.force(true)\n",
        "        out.size()\n",
        "jvm-clean",
    ),
    _scala(
        "jvm-boot-id-not-forced",
        "Locks.scala",
        "    channel.force(false)\n",
        "    channel.size()\n",
        "jvm-create",
    ),
    mutant(
        "network-mount-written",
        "logdir/opening.py",
        "        check_file_system(fs, directory)\n",
        "        fs.kind(directory)\n",
        f"{FILE_SYSTEMS}test_a_log_on_a_network_mount_is_only_read",
    ),
    mutant(
        "mounts-names-compared-with-their-case",
        "logdir/broker_lockout.py",
        "return fs.kind(directory).lower().startswith(_UNSOUND)",
        "return fs.kind(directory).startswith(_UNSOUND)",
        f"{FILE_SYSTEMS}test_a_log_on_a_network_mount_is_only_read",
    ),
    mutant(
        "sshfs-written",
        "logdir/broker_lockout.py",
        '"smb", "fuse", "9p"',
        '"smb", "fuse.s3fs", "9p"',
        f"{FILE_SYSTEMS}test_a_log_on_a_network_mount_is_only_read",
    ),
    mutant(
        "kind-of-the-outer-mount",
        "fs/local.py",
        "if real.startswith(mount) and len(mount) >= len(best):",
        "if real.startswith(mount) and len(mount) <= max(len(best), 1):",
        f"{FILE_SYSTEMS}test_the_kind_is_that_of_the_kernels_mount",
    ),
    mutant(
        "jvm-writes-to-sshfs",
        f"{SCALA}LogCheckpointFileManager.scala",
        "(nfs|cifs|smb|fuse|9p",
        "(nfs|cifs|smb|9p",
        f"{FILE_SYSTEMS}test_the_jvm_has_the_same_names",
    ),
)
