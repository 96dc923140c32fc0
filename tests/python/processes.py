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
