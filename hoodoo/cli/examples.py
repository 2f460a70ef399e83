"""Examples in the help of the commands.

A test runs all examples. They use a table `lake/trips` with the columns id, city, at and fare, and files with its rows
and keys.
"""

from __future__ import annotations

EXAMPLES = {
    "demo": "hoodoo demo --path lake/flights --rows 20000 --engine local",
    "create": 'hoodoo create lake/trips --schema "id string, city string, at timestamp, fare double" --key id '
    "--partition-by city --order-by at",
    "info": "hoodoo info lake/trips",
    "options": "hoodoo options lake/trips retain_hours=24 compact_after_logs=5",
    "drop": "hoodoo drop lake/trips --yes",
    "upsert": "hoodoo upsert lake/trips trips.csv",
    "insert": "hoodoo insert lake/trips trips.csv --existing keep",
    "update": 'hoodoo update lake/trips --set "fare=fare * 2" --where "city = \'rome\'"',
    "delete": 'hoodoo delete lake/trips --where "fare < 0"',
    "purge": "hoodoo purge lake/trips keys.csv",
    "ingest": "hoodoo ingest landing/trips lake/trips --once",
    "applications": "hoodoo applications lake/trips",
    "quarantine": "hoodoo quarantine list lake/trips",
    "schema": "hoodoo schema lake/trips --at 2",
    "alter": 'hoodoo alter lake/trips add tip "decimal(10,2)" --after fare',
    "alter add": 'hoodoo alter lake/trips add tip "decimal(10,2)" --after fare',
    "alter drop": "hoodoo alter lake/trips drop fare --rewrite",
    "alter rename": "hoodoo alter lake/trips rename fare price --rewrite",
    "alter widen": "hoodoo alter lake/trips widen seats bigint",
    "alter retype": 'hoodoo alter lake/trips retype fare "decimal(10,2)" --rewrite',
    "alter move": "hoodoo alter lake/trips move fare --after id",
    "alter nullable": "hoodoo alter lake/trips nullable fare",
    "alter rewrite": "hoodoo alter lake/trips rewrite",
    "scan": "hoodoo scan lake/trips --where \"city = 'rome'\" --as-of 2",
    "sql": 'hoodoo sql "SELECT city, sum(fare) FROM t GROUP BY city" t=lake/trips',
    "incremental": "hoodoo incremental lake/trips --since 2 --output changed.parquet",
    "changes": "hoodoo changes lake/trips --since 1d --output changes.csv",
    "diff": "hoodoo diff lake/trips 2 3",
    "get": "hoodoo get lake/trips a b",
    "duplicates": "hoodoo duplicates lake/trips",
    "history": "hoodoo history lake/trips --newest 10",
    "timeline": "hoodoo timeline lake/trips --wide",
    "files": "hoodoo files lake/trips",
    "compact": "hoodoo compact lake/trips",
    "cluster": "hoodoo cluster lake/trips --sort-by at",
    "worker": "hoodoo worker lake/trips --once",
    "services": "hoodoo services 'lake/*' --check",
    "clean": "hoodoo clean lake/trips --retain-hours 24",
    "expire": "hoodoo expire lake/trips --older-than-hours 8760",
    "sweep": "hoodoo sweep lake/trips",
    "archive": "hoodoo archive lake/trips",
    "adopt": "hoodoo adopt lake/trips",
    "export": "hoodoo export lake/trips --delta --iceberg",
    "register": "hoodoo register lake/trips lake.trips --catalog-property type=hive "
    "--catalog-property uri=thrift://localhost:9083",
    "savepoint": "hoodoo savepoint lake/trips friday",
    "restore": "hoodoo restore lake/trips friday",
    "verify": "hoodoo verify lake/trips",
    "salvage": "hoodoo salvage lake/trips --dry-run",
    "rollback": "hoodoo rollback lake/trips 20260131120000000",
    "resolve": "hoodoo resolve lake/trips 20260131120000000",
    "check-store": "hoodoo check-store lake",
}
"""Example command line by command, such as `alter add` for `hoodoo alter PATH add`."""
