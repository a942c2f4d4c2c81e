"""The home in a log dir with a tier: copies of closed segments in a bucket."""

from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import sparklog
from sparklog.service import Service, verify
from sparklog.service.verification.tier_verifier import verify_tier
from tests.damage.actions import ACTIONS, quoted
from tests.damage.log_dir import UNREAD, DirectoryPlace, LogDirHome, fill, new_place
from tests.damage.model import Files, Kind, Verdict

LOG, STORE = "log", "store"
REMOTE = f"{LOG}/sparklog.remote"
METADATA = f"{LOG}/__remote_log_metadata-0"
NO_REQUEST = "status asks the bucket for nothing of a copy; tier verify does"
COPIES = {
    ".log": {**UNREAD, "missing": NO_REQUEST},
    ".manifest": dict.fromkeys(
        ("missing", "empty", "flipped", "flipped-head", "truncated", "older", "swapped"), NO_REQUEST
    ),
}
LOCAL_BYTES = 450  # of a partition: its first segment is remote only, the second one is both


@dataclass(frozen=True, slots=True)
class TieredPlace(DirectoryPlace):
    """The log dir and its bucket, side by side in one directory."""

    above: str = ""

    @property
    def url(self) -> str:
        """Where the copies are."""
        return f"file://{self.above}/{STORE}"

    def files(self) -> Files:
        """The files as they are now, without what `tier verify` records for the service."""
        found = super(TieredPlace, self).files()
        return {name: data for name, data in found.items() if "/sparklog.damaged-" not in name}

    @property
    def root(self) -> Path:
        """The directory of both."""
        return Path(self.above)


def verified(path: str) -> Verdict:
    """Run `verify`, and `tier verify --deep` for the copies."""
    reports = [verify(path), verify_tier(path, deep=True)]
    text = "\n".join(map(str, reports))
    return Verdict("ok" if all(r.ok for r in reports) else "damage", text, quoted(text))


def repaired(path: str) -> Verdict:
    """Run `verify --repair`, `tier verify --deep`, and the service's round, which heals copies."""
    verify(path, True)
    verify_tier(path, deep=True)
    with Service(path) as service:
        service.run_once()
    return verified(path)


@cache
def home() -> LogDirHome:
    """Build the log: three closed segments a partition, the first of them only in the bucket."""
    above = new_place("tiered").path
    place = TieredPlace(f"{above}/{LOG}", above)
    Path(above).mkdir()
    with sparklog.open(place.path, "rw") as log:
        fill(
            log, **{
                "remote.storage.enable": "true", "local.retention.bytes": LOCAL_BYTES,
                "local.retention.ms": -2, "file.delete.delay.ms": 0, "segment.idle.ms": 1,
            },
        )  # fmt: skip
        before: Files = {}
        for _ in range(4):
            with Service(place.path, remote=f"file://{above}/{STORE}") as service:
                before = before or place.files()
                report = service.run_once()
            assert not report.errors, report.errors
    files = place.files()
    place.keep_lock()
    actions = replace(ACTIONS, verify=verified, repair=repaired)
    return LogDirHome("tier", place, files, kinds_of(files, before), actions)


def kinds_of(files: Files, before: Files) -> list[Kind]:
    """Every kind of file that a tier adds."""
    kinds = [
        Kind("URL of the tier", REMOTE, None, before.get(REMOTE)),
        Kind("metadata", METADATA + "/"),
        Kind("bucket", STORE + "/"),
    ]
    for suffix in (".log", ".index", ".timeindex"):
        for name in sorted(n for n in files if n.startswith(METADATA) and n.endswith(suffix))[-1:]:
            older = files[name][: len(files[name]) // 3]
            kinds.append(Kind(f"metadata {suffix}", name, None, older))
    objects = sorted(n for n in files if n.startswith(f"{STORE}/"))
    for suffix in (".log", ".manifest"):
        ours = [n for n in objects if n.startswith(f"{STORE}/t-0") and n.endswith(suffix)]
        theirs = [n for n in objects if n.startswith(f"{STORE}/t-1") and n.endswith(suffix)]
        for what, at in (("remote only", 0), ("also local", 1)):
            older = files[ours[at]][: len(files[ours[at]]) // 3]
            kinds.append(
                Kind(f"{what} {suffix}", ours[at], theirs[at], older, unread=COPIES[suffix])
            )
    topic_id = next(n for n in objects if "/t-0-" in n).split("/")[1].removeprefix("t-0-")
    owners = [n for n in objects if n.startswith(f"{STORE}/owners/")]
    ours, log = f"{STORE}/owners/{topic_id}", next(n for n in owners if not n.endswith(topic_id))
    kinds += [Kind("owner of a topic", ours, log), Kind("owner of the log", log, ours)]
    kinds.append(Kind("second URL", f"{LOG}/sparklog.remote-copy"))
    local = sorted(n for n in files if n.startswith(f"{LOG}/t-0/") and n.endswith(".log"))
    other = local[0].replace("t-0", "t-1")
    return [*kinds, Kind("local segment", local[0], other, unread=UNREAD)]
