"""Writes docs/reliability.md from the figures that a run of the tests left: `reliability.py FIGURES_FOLDER PAGE`.

Figures are one JSON object per test (tests/support/figures.py). Numbers of the tests of one goal are added up; times,
rates, sizes and ratios, which cannot be, are shown as the largest.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import NamedTuple


class Goal(NamedTuple):
    id: str
    what: str
    asked: str
    skip: tuple[str, ...] = ()


GOALS = [
    Goal(
        "T0 protocol",
        "The protocol as a state machine: every reachable state keeps the invariants; each dropped rule is noticed.",
        "750,000 states, 7 mutants",
    ),
    Goal(
        "T0 Hudi view",
        "Random histories give the same rows by Hudi's ordering rules and by slots; each dropped rule is noticed.",
        "22 mutants",
    ),
    Goal(
        "T1 ",
        (
            "Deterministic simulation of the real code: writers, services, readers, faults, crashes and clocks over "
            "one store."
        ),
        "10,000 seeds",
    ),
    Goal("T1m", "Bugs planted in the real code that the simulation must find.", "20 bugs, each within 2,000 seeds"),
    Goal(
        "T1p",
        (
            "Every operation and service runs inside every other, at each step that others can observe; some pairs "
            "take turns."
        ),
        "every pair; simulation.md lists the outcomes",
    ),
    Goal("T2a ", "Killed at every line of an operation, on a disk.", "every line"),
    Goal("T2a-s3", "The same where slots are found by listing, as on S3.", "every line"),
    Goal("T2b", "Killed at every bytecode of the commit and of a rollback.", "every bytecode"),
    Goal(
        "T2c",
        "A kill, an input/output error, a full disk (F2) and a short write at every file-system call.",
        "every call, four faults",
    ),
    Goal("T2d", "A crash during the recovery of a crash, at every pair of store operations.", "2,500 pairs"),
    Goal(
        "T2e",
        "Power is lost at any moment of three operations, and any subset of what was not synced survives.",
        "50,000 states",
    ),
    Goal(
        "T3a",
        (
            "Real processes on a real disk, one killed every 200 ms; a replay of the slots judges them. Also how soon "
            "the next writer commits (O1)."
        ),
        "60 s, nightly 10 min",
    ),
    Goal("T3b", "Spark drivers, JVMs and Python workers killed, tasks failed and run twice.", "30 kills"),
    Goal("T3c", "A writer stopped at each step of its commit, rolled back by another, and woken.", "every step"),
    Goal(
        "T4a",
        (
            "The kill loop on SeaweedFS behind a proxy that drops replies, resets, delays, answers 503 and 429, and "
            "cuts bodies."
        ),
        "60 s, nightly 10 min",
    ),
    Goal("T4b", "The S3 server itself killed and started again.", "20 times"),
    Goal("T4c", "Stores that break one promise are refused; sound stores are accepted.", "all of them"),
    Goal(
        "L1",
        "Eight writers on partitions of their own; the cost of an empty commit.",
        "20 commits/s; p50 50 ms, p99 250 ms",
    ),
    Goal("L2", "Four writers on the same hundred keys.", "10,000 increments, none lost"),
    Goal("L3", "A hundred thousand commits: opening, committing, memory.", "open 50 ms, 300 MB"),
    Goal(
        "L4",
        "Rounds of upserts into many file groups while a compactor works; all rows are compared after each round.",
        "10 million keys, 1,000 groups, 20 rounds",
    ),
    Goal("F1", "Clocks that step, freeze, differ by hours, or are in another century.", "200 schedules"),
    Goal("F3", "Three workers run one plan at once.", "one completion"),
    Goal("F4", "Readers hold each of the last twenty snapshots while a cleaner keeps one.", "none loses a file"),
    Goal(
        "soak",
        "Services in their own processes beside a busy writer; they are also killed every 2 s, and outrun.",
        "1,000 commits on either type; reads within 3 times",
    ),
    Goal(
        "compaction-memory",
        "A file group, and logs, of five times the memory budget are compacted.",
        "peak within the budget",
    ),
    Goal(
        "B ",
        "Damaged and forged logs, slots, checkpoints, instants, leases, manifests and base files.",
        "20,000 + 20,000 + 10,000 inputs",
    ),
    Goal("O2", "verify() names each planted corruption.", "15 corruptions"),
    Goal("B4", "Odd keys and partition values, in both stores.", "500 values, 10^6 pairs"),
]
_LARGEST = (
    "seconds",
    "_s",
    "_max",
    "_ratio",
    "budget",
    "peak",
    "size",
    "_ms",
    "_mb",
    "per_second",
    "mib_grown",
    "histories_until_found",
    "commits_per_s",
)
FINDINGS = Path(__file__).with_name("findings.txt")


def figures(folder: Path) -> dict[str, dict[str, object]]:
    return {path.stem: json.loads(path.read_text()) for path in sorted(folder.glob("*.json"))}


def summed(found: list[dict[str, object]]) -> str:
    total: dict[str, float] = {}
    for one in found:
        for name, value in one.items():
            if isinstance(value, (int, float)) and not isinstance(value, bool):
                largest = name.endswith(_LARGEST) or name in _LARGEST
                total[name] = max(total.get(name, 0), value) if largest else total.get(name, 0) + value
    return ", ".join(f"{name.replace('_', ' ')} {value:,.1f}".removesuffix(".0") for name, value in total.items())


def page(all_figures: dict[str, dict[str, object]], findings: str) -> str:
    lines = [
        "# What was tried to break it, how hard, and what came out",
        "",
        (
            "`make reliability` makes this page from the figures that the tests leave, not by hand. Ids are those of "
            "the goals that the tests stand for."
        ),
        "Numbers of a goal's tests are added up; of times, rates and sizes the largest is shown.",
        "Any violation fails the tests.",
        "[architecture.md](architecture.md#testing) says which tests run when.",
        "",
        "| Goal | What is tried | Asked | Run |",
        "| --- | --- | --- | --- |",
    ]
    for goal in GOALS:
        mine = [figure for name, figure in all_figures.items() if f"{name} ".startswith(goal.id)]
        lines.append(
            f"| {goal.id.strip()} | {goal.what} | {goal.asked} | "
            f"{f'{len(mine)} tests: {summed(mine)}' if mine else 'not in this run'} |"
        )
    lines += [
        "",
        "## Bugs of ours that these tests found",
        "",
        "Each is fixed; most have a regression test that tells the story.",
        "",
        findings.strip(),
        "",
    ]
    return "\n".join(lines)


def main(folder: str, target: str) -> None:
    Path(target).write_text(page(figures(Path(folder)), FINDINGS.read_text()))


if __name__ == "__main__":
    main(*sys.argv[1:])
