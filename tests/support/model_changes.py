"""What changed between two slots of a model table, and what replaying changes gives: plain Python, the oracle of the
readers' tests.
"""

from __future__ import annotations

from typing import Any

from table_model import Identity, Model, Row

Change = tuple[str, Row | None, Row | None]
Rows = dict[Identity, tuple[Row, int]]


def net(before: Rows, after: Rows) -> list[tuple[Identity, Change]]:
    """The difference of two snapshots: one change for a key whose row is not as it was."""
    found: list[tuple[Identity, Change]] = []
    for identity in {**before, **after}:
        old, new = before.get(identity), after.get(identity)
        if old is None and new is not None:
            found.append((identity, ("i", None, new[0])))
        elif new is None and old is not None:
            found.append((identity, ("d", old[0], None)))
        elif old and new and old[0] != new[0]:
            found.append((identity, ("u", old[0], new[0])))
    return found


def step(before: Rows, after: Rows) -> list[tuple[Identity, Change]]:
    """What one commit did: as `net`, and updates by equal rows too."""
    found = net(before, after)
    for identity in before.keys() & after.keys():
        (old, wrote), (new, rewrote) = before[identity], after[identity]
        if old == new and wrote != rewrote:
            found.append((identity, ("u", old, new)))
    return found


def gone_at(model: Model, identity: Identity, since: int, until: int) -> int:
    """The last slot in (since, until] that took the key away."""
    return max(
        seq
        for seq in range(since + 1, until + 1)
        if identity in model.snapshots.get(seq - 1, {}) and identity not in model.snapshots[seq]
    )


def replay(rows: dict[Identity, Row], changes: list[dict[str, Any]], model: Model) -> dict[Identity, Row]:
    """`rows` with the changes applied, each of which must fit what is there."""
    rows = dict(rows)
    for change in changes:
        image = change["after"] or change["before"]
        identity = model.identity(image)
        assert (identity in rows) == (change["op"] != "i"), f"{change} does not fit"
        if change["before"] is not None:
            assert repr(rows.pop(identity)) == repr(change["before"])
        if change["after"] is not None:
            rows[identity] = change["after"]
    return rows
