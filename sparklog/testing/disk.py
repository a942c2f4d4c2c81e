"""A disk in memory that knows which data were synced: the model under `crashfs`.

A file has its content as processes see it (`data`: page cache) and as the platter has it
(`durable`), with the writes and truncates in between (`ops`). A directory has its names twice, too,
with the changes in between. Synced data survive a power cut, and any part of the rest:

- a write survives, is lost, or is torn between its 512-byte sectors, independently of other writes;
- the size follows the order of the metadata: it is the size after a prefix of the file's
  operations, whether or not their data survive; missing data read as zeros;
- a lost truncate may still have zeroed the rest of its sector;
- each name has the state after a prefix of its own changes. A rename is atomic and never loses a
  file: the old name disappears only if the new name exists. For a directory, which can't have two
  names, both happen at once. An exchange changes both names or none.

Real journalling file systems preserve more order, so code that survives here survives there. A
failed fdatasync leaves its writes in limbo, as on Linux: visible, marked clean, never written by a
later sync. Source: PROTOCOL C8; fsync(2); ALICE (OSDI 2014).
"""

import errno
import os
import random
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from sparklog.clock import Clock, ManualClock

SECTOR: Final = 512
Mode = Literal["strict", "all", "random"]


@dataclass(slots=True, eq=False)
class FileOp:
    """A write (`data` at `at`) or a truncate (`data` None, to size `at`) since the last sync."""

    at: int
    data: bytes | None
    limbo: bool = False  # a failed sync dropped it: it may be lost even if a later sync succeeds
    synced: bool = False  # only used while there are limbo operations before it


def apply_op(target: bytearray, op: FileOp) -> None:
    """Apply `op` to `target`, which grows with zeros like a file."""
    if op.data is None:
        if op.at < len(target):
            del target[op.at :]
        else:
            target.extend(bytes(op.at - len(target)))
        return
    if op.at > len(target):
        target.extend(bytes(op.at - len(target)))
    target[op.at : op.at + len(op.data)] = op.data


@dataclass(slots=True, eq=False)
class FileNode:
    """A file (an inode). The names of the file belong to directories."""

    ino: int
    mtime_ms: int = 0
    data: bytearray = field(default_factory=bytearray)
    durable: bytearray = field(default_factory=bytearray)
    ops: list[FileOp] = field(default_factory=list)
    limbo: bool = False  # whether a sync of any of `ops` failed
    locks: list[Any] = field(default_factory=list)  # crashfs.Lock
    mappings: list[Any] = field(default_factory=list)  # weak references to crashfs.CrashMapping
    renamed_ms: int = 0  # when it last got a name

    def is_locked(self, first: int, length: int) -> bool:
        end = first + length if length else 1 << 63
        return any(lock.first < end and first < lock.end for lock in self.locks)

    def change(self, op: FileOp) -> None:
        apply_op(self.data, op)
        self.ops.append(op)

    def sync(self) -> None:
        if not self.ops:
            return
        if self.limbo:
            # The writes of the failed sync stay uncertain, and later writes must not become durable
            # before them: an image is made from all operations in order.
            for op in self.ops:
                op.synced = True
            return
        for op in self.ops:
            apply_op(self.durable, op)
        self.ops.clear()

    def fail_sync(self) -> None:
        """Fail a sync as Linux does: mark the pages clean, and forget their writes."""
        for op in self.ops:
            op.limbo = op.limbo or not op.synced
            self.limbo = self.limbo or op.limbo

    def after_power_cut(self, mode: Mode, rng: random.Random, keep: float) -> bytearray:
        """Return the content of the platter after a power cut."""
        if mode == "all" or not self.ops:
            return bytearray(self.data)
        # A later sync made the size durable, also where the data of a failed sync are lost.
        least = max((n + 1 for n, op in enumerate(self.ops) if op.synced), default=0)
        prefix = least if mode == "strict" else rng.randint(least, len(self.ops))
        image = bytearray(self.durable)
        for number, op in enumerate(self.ops):
            in_order = number < prefix
            sure = op.synced and not op.limbo
            if op.data is None:
                if in_order:
                    apply_op(image, op)
                elif mode == "random" and op.at < len(image) and rng.random() < 0.25:
                    stop = min(len(image), -(-op.at // SECTOR) * SECTOR)
                    image[op.at : stop] = bytes(max(0, stop - op.at))
                continue
            old = bytes(image)
            if in_order and op.at + len(op.data) > len(image):
                image.extend(bytes(op.at + len(op.data) - len(image)))
            if sure:
                _overlay(image, op.at, op.data, lambda _: True)
            elif mode == "random":
                _overlay(image, op.at, op.data, _survivors(rng, keep))
            assert len(image) >= len(old)
        return image


def _survivors(rng: random.Random, keep: float) -> Callable[[int], bool]:
    """Choose which sectors of a write become durable: all, none, or a random subset."""
    chance = rng.random()
    if chance < 0.3:  # torn
        share = rng.random()
        return lambda _: rng.random() < share
    whole = rng.random() < keep
    return lambda _: whole


def _overlay(image: bytearray, at: int, data: bytes, survives: Callable[[int], bool]) -> None:
    """Write the sectors of `data` that survive into `image`, not past the end of `image`."""
    stop = min(at + len(data), len(image))
    while at < stop:
        edge = min(stop, (at // SECTOR + 1) * SECTOR)
        if survives(at):
            image[at:edge] = data[: edge - at]
        data, at = data[edge - at :], edge


@dataclass(slots=True, eq=False)
class NameOp:
    """A change of a name in `directory`.

    Attributes:
        node: The file or directory that gets the name; None if the name is removed.
    """

    directory: "DirNode"
    name: str
    node: "Node | None"
    needs: "NameOp | None" = None  # the other half of a rename: without it this can't survive


@dataclass(slots=True, eq=False)
class DirNode:
    """A directory: current names, durable names, and the changes between the two."""

    ino: int
    mtime_ms: int = 0
    entries: dict[str, "Node"] = field(default_factory=dict)
    durable: dict[str, "Node"] = field(default_factory=dict)
    ops: list[NameOp] = field(default_factory=list)
    renamed_ms: int = 0

    def change(self, name: str, node: "Node | None", needs: NameOp | None = None) -> NameOp:
        op = NameOp(self, name, node, needs)
        if node is None:
            if name not in self.entries:  # another process removed it during this call
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), name)
            del self.entries[name]
        else:
            self.entries[name] = node
        self.ops.append(op)
        return op

    def sync(self) -> None:
        ops, self.ops = self.ops, []
        for op in ops:
            # fsync of one directory makes a rename durable in both: journals never split it.
            if op.needs is not None:
                op.needs.directory._settle_to(op.needs)
            _apply_name(self.durable, op)

    def _settle_to(self, last: NameOp) -> None:
        """Make the changes of a name up to `last` durable: a rename is a single transaction."""
        if last not in self.ops:
            return
        settled = [op for op in self.ops[: self.ops.index(last) + 1] if op.name == last.name]
        for op in settled:  # first of all: the halves of an exchange need each other
            self.ops.remove(op)
        for op in settled:
            if op.needs is not None:
                op.needs.directory._settle_to(op.needs)
            _apply_name(self.durable, op)


Node = FileNode | DirNode


def _apply_name(names: dict[str, Node], op: NameOp) -> None:
    if op.node is None:
        names.pop(op.name, None)
    else:
        names[op.name] = op.node


class Disk:
    """The disk of a machine: directory tree, boot number, and properties."""

    def __init__(self, clock: Clock | None = None, *, boot: int = 1) -> None:
        self.clock: Clock = clock if clock is not None else ManualClock()
        self.boot = boot
        self.dev = 2049
        self.next_ino = 2
        self.root = DirNode(ino=1)
        self.places: dict[str, DirNode] = {}  # paths of directories, as they were found last
        self.free_bytes = 1 << 40
        self.kind = "ext4"
        self.exchanges = True  # whether two names can change places

    @property
    def boot_id(self) -> str:
        return str(uuid.UUID(int=0x5EED << 64 | self.boot))

    def new_ino(self) -> int:
        self.next_ino += 1
        return self.next_ino

    def after_power_cut(self, rng: random.Random, mode: Mode) -> "Disk":
        """Return the disk after a power cut and a restart."""
        keep = rng.choice((0.1, 0.5, 0.9)) if mode == "random" else 0.0
        kept = self._kept_names(rng, mode, keep)
        other = self._like(self.boot + 1)

        def names(node: DirNode) -> dict[str, Node]:
            result = dict(node.durable)
            for op in node.ops:
                if op in kept:
                    _apply_name(result, op)
            return result

        def contents(node: FileNode) -> bytearray:
            return node.after_power_cut(mode, rng, keep)

        other.root = _copy_durable(self.root, names, contents)
        return other

    def clone(self) -> "Disk":
        """Return a copy with page cache and pending changes, without locks."""
        other = self._like(self.boot)
        nodes: dict[int, Node] = {}
        ops: dict[int, NameOp] = {}
        for node in self.nodes():
            if isinstance(node, FileNode):
                copied = [FileOp(op.at, op.data, op.limbo, op.synced) for op in node.ops]
                nodes[id(node)] = FileNode(
                    node.ino,
                    node.mtime_ms,
                    bytearray(node.data),
                    bytearray(node.durable),
                    copied,
                    node.limbo,
                    renamed_ms=node.renamed_ms,
                )
            else:
                nodes[id(node)] = DirNode(node.ino, node.mtime_ms)
        directories = [node for node in self.nodes() if isinstance(node, DirNode)]
        for node in directories:
            twin = nodes[id(node)]
            assert isinstance(twin, DirNode)
            twin.entries = {name: nodes[id(n)] for name, n in node.entries.items()}
            twin.durable = {name: nodes[id(n)] for name, n in node.durable.items()}
            for op in node.ops:
                target = None if op.node is None else nodes[id(op.node)]
                ops[id(op)] = NameOp(twin, op.name, target)
                twin.ops.append(ops[id(op)])
        for node in directories:
            for op in node.ops:
                if op.needs is not None and id(op.needs) in ops:  # absent: it is durable already
                    ops[id(op)].needs = ops[id(op.needs)]
        root = nodes[id(self.root)]
        assert isinstance(root, DirNode)
        other.root = root
        return other

    def nodes(self) -> Iterator[Node]:
        """Yield every node that is reachable now, or could be after a crash, once."""
        seen: set[int] = set()
        stack: list[Node] = [self.root]
        while stack:
            node = stack.pop()
            if id(node) in seen:
                continue
            seen.add(id(node))
            yield node
            if isinstance(node, DirNode):
                stack.extend(node.entries.values())
                stack.extend(node.durable.values())
                stack.extend(op.node for op in node.ops if op.node is not None)

    def _like(self, boot: int) -> "Disk":
        other = Disk(self.clock, boot=boot)
        other.dev, other.next_ino = self.dev, self.next_ino
        other.free_bytes, other.kind = self.free_bytes, self.kind
        other.exchanges = self.exchanges
        return other

    def _kept_names(self, rng: random.Random, mode: Mode, keep: float) -> set[NameOp]:
        kept: set[NameOp] = set()
        by_name: dict[tuple[int, str], list[NameOp]] = {}
        for node in self.nodes():
            if isinstance(node, DirNode):
                for op in node.ops:
                    by_name.setdefault((id(node), op.name), []).append(op)
        if mode == "strict":
            return kept
        for changes in by_name.values():
            if mode == "all" or rng.random() < keep:
                kept.update(changes)
            else:
                kept.update(changes[: rng.randint(0, len(changes) - 1)])
        while missing := [op for op in kept if op.needs is not None and op.needs not in kept]:
            grown = len(kept)
            for op in missing:
                assert op.needs is not None
                changes = by_name.get((id(op.needs.directory), op.needs.name), [])
                if op.needs in changes:  # otherwise it is durable already
                    kept.update(changes[: changes.index(op.needs) + 1])
            if len(kept) == grown:
                break
        return kept


def _copy_durable(
    root: DirNode,
    names: Callable[[DirNode], dict[str, Node]],
    contents: Callable[[FileNode], bytearray],
) -> DirNode:
    """Copy a tree as chosen; a file with two names stays a single file."""
    copies: dict[int, Node] = {}

    def copy(node: Node) -> Node:
        if id(node) in copies:
            return copies[id(node)]
        if isinstance(node, FileNode):
            data = contents(node)
            file = FileNode(node.ino, node.mtime_ms, data, bytearray(data))
            file.renamed_ms = node.renamed_ms
            copies[id(node)] = file
            return file
        directory = DirNode(node.ino, node.mtime_ms)
        copies[id(node)] = directory
        directory.entries = {name: copy(n) for name, n in sorted(names(node).items())}
        directory.durable = dict(directory.entries)
        return directory

    copied = copy(root)
    assert isinstance(copied, DirNode)
    return copied
