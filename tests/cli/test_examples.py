"""The examples that run a worker: what they tell the system fits what the worker does, and their command lines are
ours.
"""

from __future__ import annotations

import configparser
import json
import re
import shlex
from pathlib import Path
from typing import Any

import yaml

from hoodoo.cli.main import parser
from hoodoo.compactor.limits import ServiceLimits
from hoodoo.compactor.service_list import SERVICES
from hoodoo.compactor.status.metrics import TableCollector
from hoodoo.compactor.worker import _GRACE_S
from hoodoo.ingestion.metrics import JobCollector

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
_UNITS = {"G": 1 << 30, "Gi": 1 << 30, "M": 1 << 20, "Mi": 1 << 20}


def given_by(command: list[str]) -> Any:
    """The arguments as our own parser reads them, which must be those of a worker that runs for ever."""
    assert Path(command[0]).name == "hoodoo"
    given = parser().parse_args(command[1:])
    assert given.command == "worker" and not given.once
    assert set(given.services) == set(SERVICES)
    ServiceLimits(
        memory_bytes=given.memory, bytes_per_second=given.max_bytes_per_second, groups_at_once=given.groups_at_once
    )
    return given


def bytes_of(text: str) -> int:
    number, unit = re.fullmatch(r"(\d+)(\w+)", text).groups()  # type: ignore[union-attr]
    return int(number) * _UNITS[unit]


def test_the_systemd_unit_runs_a_worker_restarts_it_and_gives_it_time_to_end() -> None:
    unit = configparser.ConfigParser(interpolation=None, strict=True)
    unit.optionxform = str  # type: ignore[assignment,method-assign]
    unit.read_string((EXAMPLES / "hoodoo-worker.service").read_text())
    service = unit["Service"]
    given = given_by(shlex.split(service["ExecStart"]))
    assert bytes_of(service["MemoryMax"]) >= 2 * given.memory
    assert (service["Type"], service["Restart"], service["KillSignal"]) == ("exec", "always", "SIGTERM")
    assert int(service["TimeoutStopSec"]) > 2 * _GRACE_S
    hardened = (
        "NoNewPrivileges",
        "ProtectHome",
        "PrivateTmp",
        "PrivateDevices",
        "ProtectKernelTunables",
        "RestrictSUIDSGID",
    )
    assert (
        all(service[name] == "yes" for name in hardened)
        and service["ProtectSystem"] == "strict"
        and service["CapabilityBoundingSet"] == ""
    )
    assert all(
        path.startswith(service["ReadWritePaths"] + "/") for path in given.paths
    )  # the only place it may write is where its tables are
    assert service["User"] != "root"


def test_the_kubernetes_deployment_runs_workers_within_their_memory_and_asks_whether_they_live() -> None:
    deployment = yaml.safe_load((EXAMPLES / "kubernetes-worker.yaml").read_text())
    spec = deployment["spec"]["template"]["spec"]
    [container] = spec["containers"]
    given = given_by(container["command"])
    assert bytes_of(container["resources"]["limits"]["memory"]) >= 2 * given.memory
    assert spec["terminationGracePeriodSeconds"] > 2 * _GRACE_S
    assert f"http://127.0.0.1:{given.metrics_port}/metrics" in container["livenessProbe"]["exec"]["command"][-1]
    compile(container["livenessProbe"]["exec"]["command"][-1], "probe", "exec")
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert spec["securityContext"]["runAsNonRoot"] is True
    assert {"name": "tmp", "mountPath": "/tmp"} in container["volumeMounts"]
    assert deployment["spec"]["selector"]["matchLabels"] == deployment["spec"]["template"]["metadata"]["labels"]


# ---- monitoring
def _metric_names() -> set[str]:
    families = [*TableCollector([]).collect(), *JobCollector([]).collect()]
    return {family.name + ("_total" if family.type == "counter" else "") for family in families}


def test_alert_rules_use_metrics_that_exist() -> None:
    rules = yaml.safe_load((EXAMPLES / "monitoring/alerts.yaml").read_text())["groups"][0]["rules"]
    used = [re.findall(r"hoodoo_\w+", rule["expr"]) for rule in rules]
    assert len(rules) == 9 and all(len(names) == 1 for names in used)
    assert {name for [name] in used} <= _metric_names()
    assert all(rule["annotations"]["summary"] and rule["labels"]["severity"] for rule in rules)


def test_the_dashboard_shows_metrics_that_exist_in_panels_that_do_not_overlap() -> None:
    panels = json.loads((EXAMPLES / "monitoring/dashboard.json").read_text())["panels"]
    used = {name for panel in panels for name in re.findall(r"hoodoo_\w+", panel["targets"][0]["expr"])}
    assert len(panels) == 12 and used <= _metric_names()
    assert len({(panel["gridPos"]["x"], panel["gridPos"]["y"]) for panel in panels}) == len(panels)
