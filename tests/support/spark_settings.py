"""What every Spark session of the tests is set to: two cores, loopback only, no UI, nothing left outside its folder."""

from __future__ import annotations

from pathlib import Path


def local_settings(folder: Path, zone: str = "UTC") -> dict[str, str]:
    return {
        "spark.ui.enabled": "false",
        "spark.driver.memory": "2g",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.sql.session.timeZone": zone,
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.local.dir": str(folder / "local"),
    }
