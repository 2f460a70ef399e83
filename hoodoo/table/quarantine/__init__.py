"""Quarantine, which is a table of bad rows.

A bad row is stored only once, even after retries in any order. Its key consists of its origin (`source`) and the
identity of its content (`position`), and a write never overwrites existing quarantine rows. The package accesses tables
through the interface in target.py.
"""

from hoodoo.table.quarantine.quarantine import Quarantine
from hoodoo.table.quarantine.replay import Replayed

__all__ = ["Quarantine", "Replayed"]
