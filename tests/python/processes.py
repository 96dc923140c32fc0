"""Which processes a process has started."""

from pathlib import Path


def children(pid):
    """All processes that come from this one."""
    parents = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue  # it has ended
        parents.setdefault(int(fields[1]), []).append(int(stat.parent.name))
    found, left = [], [pid]
    while left:
        here = left.pop()
        found.append(here)
        left.extend(parents.get(here, ()))
    return found[1:]


def command(pid):
    """The command line; empty where the process has ended, waited for or not."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def engines(pid):
    """The processes of Ray below this one that hold an engine."""
    name = b"ray::MapWorker(MapBatches(_Actor)"
    return sorted(child for child in children(pid) if command(child).startswith(name))
