"""The quarantine of a table: the bad rows of its writes, kept in an ordinary table beside it, `<path>__quarantine`.

A bad row is kept once, whatever is retried and in whatever order: its key says from where it came (`source`) and what
its bytes are (`position`), and a write never overwrites what is there. Knows tables by what they can do (target.py).
"""

from hoodoo.table.quarantine.quarantine import Quarantine
from hoodoo.table.quarantine.replay import Replayed

__all__ = ["Quarantine", "Replayed"]
