"""Delta actions for base files overlaid with log files.

They are additional data files and deletion vectors. A deletion vector is stored next to the rows of its overlay. The
UUID of its file equals the name of the overlay.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence

from hoodoo.exports.base_files import live
from hoodoo.exports.delta import actions
from hoodoo.exports.delta import deletion_vector as vectors
from hoodoo.exports.delta.delta_schema import Json
from hoodoo.exports.delta.log import Identity, deletion_vector_identity, identity
from hoodoo.exports.overlays import LogFileChangesCache, derive_changes_name
from hoodoo.exports.writing import MetadataFileWriter
from hoodoo.timeline.layout import OVERLAYS
from hoodoo.timeline.properties.config import TableConfig
from hoodoo.timeline.views.view import FileGroup, View


def create_file_actions(
    writing: MetadataFileWriter,
    overlays: LogFileChangesCache,
    config: TableConfig,
    view: View,
    groups: Sequence[FileGroup],
    log_files: Mapping[Identity, Json],
    at_ms: int,
) -> list[Json]:
    """Create the Delta actions that add base files and log files.

    `log_files` are the files in the Delta log, if they have the same columns. Actions of unchanged files are reused.
    """
    adds = {}
    for path, (_, file) in sorted(live(view).items()):
        add_action = log_files.get((actions.encode_delta_path(path), ""))
        adds[path] = {"add": add_action} if add_action else actions.add(config, file, False, at_ms, True)
    by_path: dict[str, Json] = {path: log_action for (path, _), log_action in log_files.items()}
    missing_overlays = []
    rows: list[Json] = []
    for group in groups:
        if not _can_all_readers_find_vector(group):
            del adds[group.base_path]
            overlay_action = by_path.get(overlays.merged_rows_path(config, group))
            written = None if overlay_action else overlays.write_merged_rows(writing, config, group)
            rows += (
                [{"add": overlay_action}]
                if overlay_action
                else [actions.add(config, written.file, False, at_ms, True)]
                if written
                else []
            )
            continue
        name = derive_changes_name(config, group)
        base, overlay_action = (
            by_path.get(actions.encode_delta_path(group.base_path)),
            by_path.get(f"{OVERLAYS}{name}.parquet"),
        )
        overlaid = base is not None and identity(base)[1] == _deletion_vector_id(name)
        if not overlaid and overlay_action is None:
            missing_overlays.append(group)
        if base is not None and overlaid:
            adds[group.base_path] = {"add": base}
        if overlay_action is not None:
            rows.append({"add": overlay_action})
    for overlay in overlays.compute_changes(writing, config, missing_overlays):
        if overlay.rows:
            rows.append(actions.add(config, overlay.rows.file, False, at_ms, True))
        if overlay.base and len(overlay.dead):
            number = uuid.UUID(hex=overlay.name)
            data = vectors.file_of(overlay.dead)
            writing.create_and_measure(vectors.key_of(number), data)
            vector = vectors.describe_deletion_vector(number, len(data), len(overlay.dead))
            path = overlay.base.file.path
            adds[path] = actions.add_deletion_vector(adds[path], vector)
    return [*adds.values(), *rows]


def _can_all_readers_find_vector(group: FileGroup) -> bool:
    # polars 2.1 does not find the deletion vector if the log encodes the path differently from the store, for example a
    # blank in a folder name. It then shows the dead rows without an error.
    return actions.encode_delta_path(group.base_path) == group.base_path


def _deletion_vector_id(overlay: str) -> str:
    return deletion_vector_identity(vectors.describe_deletion_vector(uuid.UUID(hex=overlay), 0, 0))
