"""The table in other formats: Delta's log and Iceberg's metadata over the base files of hoodoo. No row is copied."""
