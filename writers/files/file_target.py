"""Targets, which are locations of files that a write creates."""

from __future__ import annotations

from dataclasses import dataclass

from hoodoo.format.names import base_file_name, change_log_name, join, log_file_name


@dataclass(frozen=True)
class FileTarget:
    """Target location of a file that a write creates.

    Attributes:
        partition: The folder of the partition, relative to the table, or '' in a table without partitions.
        file_id: The id of the file group.
        instant: The instant of the write, 17 digits.
    """

    partition: str
    file_id: str
    instant: str

    @property
    def base_name(self) -> str:
        return base_file_name(self.file_id, self.instant)

    @property
    def base_path(self) -> str:
        return join(self.partition, self.base_name)

    @property
    def change_log_path(self) -> str:
        return join(self.partition, change_log_name(self.file_id, self.instant))

    def log_path(self, version: int = 1) -> str:
        return join(self.partition, log_file_name(self.file_id, self.instant, version))
