"""Creation of a table.

Slot 1 is an empty commit that is older than any transaction (protocol rule 7).
"""

from __future__ import annotations

from collections.abc import Mapping

from hoodoo.errors import TableExists
from hoodoo.format.names import instant_of_ms
from hoodoo.storage.store import Store
from hoodoo.timeline.environment import Environment
from hoodoo.timeline.hudi.commit_metadata import encode_commit_metadata, encode_inflight_file
from hoodoo.timeline.hudi.publish import find_publication_file
from hoodoo.timeline.instant import Instant, State
from hoodoo.timeline.layout import PROPERTIES, TIMELINE, slot_key
from hoodoo.timeline.properties import hoodie_properties
from hoodoo.timeline.properties.config import TABLE_ID, TableConfig
from hoodoo.timeline.slots.slot import COMPLETED, TRANSFORMS, Slot, encode_commit_file


def create_table(store: Store, properties: Mapping[str, str], environment: Environment) -> None:
    """Create a table in a folder.

    Raises TableExists if the location already contains a table. The properties are written first, and then slot 1,
    which completes the creation. After a crash in between, the next create with the same path continues. Properties and
    slot 1 contain the table's id, so that other processes can detect a replaced table.
    """
    now, token = environment.now_ms(), environment.token()
    config = hoodie_properties.parse_config(properties)
    if exists(store):
        raise TableExists(f"Table {store.uri} already exists. Open it with hoodoo.open(path).", path=store.uri)
    try:
        store.put_if_absent(PROPERTIES, hoodie_properties.render({**properties, TABLE_ID: token}, now))
    except FileExistsError:
        stored = hoodie_properties.read_properties(store)
        token = stored.pop(TABLE_ID, token)
        if stored != dict(properties):
            raise TableExists(
                f"Path {store.uri} contains the properties of a different table, whose creation was not completed. "
                "Choose another path, or delete the folder.",
                path=store.uri,
            ) from None
    if not write_first_commit(store, config, token, now, environment):
        raise TableExists(
            f"Table {store.uri} was created by another process at the same time. Open it with hoodoo.open(path).",
            path=store.uri,
        )


def exists(store: Store) -> bool:
    return store.exists(slot_key(1)) or any(True for _ in store.list(TIMELINE))


def write_first_commit(store: Store, config: TableConfig, table: str, now_ms: int, environment: Environment) -> bool:
    """Write the empty first commit of a table.

    Args:
        store: The store of the table.
        config: The configuration of the table.
        table: The id of the table.
        now_ms: The time of the slot, in ms since 1970. It must be before every commit of the table.
        environment: The environment of this process.

    Returns:
        False if the table already has slot 1.
    """
    instant = instant_of_ms(now_ms)
    slot = Slot(
        seq=1,
        prev="",
        table=table,
        instant=instant,
        action=config.write_action,
        outcome=COMPLETED,
        operation="INSERT",
        nonce=environment.token(),
        base_seq=0,
        completed_at=now_ms + 1,
        writer=environment.writer(),
        needs=(TRANSFORMS,)
        if config.transforms
        else (),  # releases without this feature would not compute or check partition columns
    )
    try:
        store.put_if_absent(slot_key(1), encode_commit_file(slot))
    except FileExistsError:
        return False
    store.write_once(Instant(instant, config.write_action, State.REQUESTED).key, b"")
    store.write_once(Instant(instant, config.write_action, State.INFLIGHT).key, encode_inflight_file("INSERT"))
    store.write_once(find_publication_file(slot), encode_commit_metadata(slot, config.schema_text))
    return True
