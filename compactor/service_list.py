"""List of all table services.

The services run in this order. To add a service, define a `Service` in a folder of compactor/, import it here and add
it to `SERVICES`. The command line uses this list too.
"""

from __future__ import annotations

from hoodoo.compactor.cleaning.cleaning_services import ARCHIVE, CLEAN
from hoodoo.compactor.clustering.clustering_service import CLUSTER
from hoodoo.compactor.compaction.compaction_service import COMPACT
from hoodoo.compactor.export_service import EXPORT
from hoodoo.compactor.service_turn import Service

SERVICES: dict[str, Service] = {service.name: service for service in (COMPACT, CLUSTER, EXPORT, CLEAN, ARCHIVE)}
