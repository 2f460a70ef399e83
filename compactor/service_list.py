"""The table services there are, in the order of a worker's round and of what a writer does after its commit.

Another one is a `Service` in a folder of compactor/, imported here and added to the tuple of `SERVICES`. The command
line takes its list from here too.
"""

from __future__ import annotations

from hoodoo.compactor.cleaning.cleaning_services import ARCHIVE, CLEAN
from hoodoo.compactor.clustering.clustering_service import CLUSTER
from hoodoo.compactor.compaction.compaction_service import COMPACT
from hoodoo.compactor.export_service import EXPORT
from hoodoo.compactor.service_turn import Service

SERVICES: dict[str, Service] = {service.name: service for service in (COMPACT, CLUSTER, EXPORT, CLEAN, ARCHIVE)}
