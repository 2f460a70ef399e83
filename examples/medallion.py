"""Keep a cleaned copy of a table with a Spark stream, deletes included.

Run the program again to continue where it stopped, or remove `availableNow` to let it run forever.

    python medallion.py /data/trips /data/trips_clean /data/checkpoints/trips_clean
"""

from __future__ import annotations

import sys
from typing import Any

from pyspark.sql import SparkSession

import hoodoo


def main(bronze_path: str, silver_path: str, checkpoint: str) -> None:
    spark = SparkSession.builder.getOrCreate()
    hoodoo.register(spark)
    bronze = hoodoo.open(bronze_path)
    try:
        silver = hoodoo.open(silver_path)
    except hoodoo.TableNotFound:
        silver = hoodoo.create(
            silver_path, bronze.schema, key=bronze.key, partition_by=bronze.partition_by
        )  # no order_by: bronze has decided what is newest
    commit = silver.sink("bronze-to-silver")

    def clean(frame: Any, batch: int) -> None:
        commit(
            frame.dropDuplicates(list(silver.key + silver.partition_by)), batch
        )  # your own transformations; deletes have `_hoodie_is_deleted`

    changed = (
        spark.readStream.format("hoodoo")
        .options(mode="incremental", deletes="true", maxCommitsPerTrigger="100")
        .load(bronze.path)
    )
    query = (
        changed.writeStream.foreachBatch(clean)
        .option("checkpointLocation", checkpoint)
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    print(f"{silver.path}: {silver.scan().count()} rows at {silver.cursor}")


if __name__ == "__main__":
    main(*sys.argv[1:4])
