"""Run the rows, judge them, and write `out/chaos.json`."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import time
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table

from tests.local.errors import LocalError
from tests.local.paths import OUT, shown
from tests.local.processes import Processes
from tests.local.say import console, step

from .bed import Bed, Burst
from .judge import Evidence, Rules, row
from .rows import LIMIT, QUICK_MAILS, ROWS, Broken, Row

WRITTEN = OUT / "chaos.json"
#: Columns of the terminal that the table takes.
WIDTH = 130
#: Of the duplicates that a policy explains, so many are printed; all are in the file.
SHOWN = 3
#: Of a row, in the order of the table, and what heads them there.
COLUMNS = {
    "fault": "fault",
    "accepted": "accepted",
    "sent": "sent",
    "duplicates": "twice",
    "duplicates_allowed": "allowed",
    "lost": "lost",
    "dead_lettered": "dead",
    "parked": "parked",
    "throttled": "throttled",
    "throttled_after_first_second": "> 1 s",
    "recovered_seconds": "recovered",
}


def chosen(quick: bool, only: str) -> list[Row]:
    """The rows of the short form or of all; of these, the ones whose names have a word in common with `only`."""
    words = [word.strip().lower() for word in only.split(",") if word.strip()]
    rows = [one for one in ROWS if one.quick or not quick or words]
    if words:
        rows = [one for one in rows if any(word in one.fault.lower() for word in words)]
        if not rows:
            raise LocalError(f"CHAOS_ROWS={only}: no row has any of it in its name; names are in docs/chaos.md")
    return rows


def chaos(quick: bool, seed: int, only: str) -> int:
    """Run it; the exit code."""
    rows = chosen(quick, only)
    out = OUT / "chaos"
    WRITTEN.unlink(missing_ok=True)
    begun = time.monotonic()
    results: list[dict[str, Any]] = []
    with Processes(out / "logs") as processes:
        bed = Bed(processes, out, seed)
        for group in groups(rows):
            for result in _run(bed, group, quick):
                results.append(result)
                WRITTEN.write_text(json.dumps(results, indent=2) + "\n")
            if dead := processes.dead():
                raise LocalError(f"{dead} stopped by itself{processes.tail(dead)}")
    _print(results)
    console.print(f"wrote {shown(WRITTEN)} in {time.monotonic() - begun:.0f} s, with CHAOS_SEED={seed}")
    failed = [result for result in results if result["failures"]]
    for result in failed:
        console.print(f"[red]failed:[/] {result['fault']}: {'; '.join(result['failures'])}", soft_wrap=True)
    if failed:
        console.print(f"logs are in {shown(out / 'logs')}/")
    return 1 if failed else 0


def groups(rows: Iterable[Row]) -> Iterator[list[Row]]:
    """Rows that are settled together, and each of the others alone."""
    for _, members in itertools.groupby(rows, key=lambda one: one.together or one.fault):
        yield list(members)


def _run(bed: Bed, group: Sequence[Row], quick: bool) -> list[dict[str, Any]]:
    """Run a group, whose rows have the same policies; its results."""
    first = group[0]
    begun = time.monotonic()
    bed.policies(first.redis_down, first.uncertain)
    bed.fresh()
    done: list[tuple[Row, Burst, Broken, str | None]] = []
    with contextlib.ExitStack() as stack:
        if first.events:
            bed.provider.settings(events_endpoint=bed.stack.endpoint_url)
            stack.callback(bed.provider.settings, events_endpoint="")
            stack.enter_context(bed.events.observed())
        for one in group:
            with step(one.fault):
                done.append(_act(bed, one, quick))
        with step("waiting until nothing is under way"):
            waiting = bed.settle()
    seconds = time.monotonic() - begun
    return [_judge(bed, *each, quick=quick, waiting=waiting, seconds=seconds) for each in done]


def _act(bed: Bed, one: Row, quick: bool) -> tuple[Row, Burst, Broken, str | None]:
    burst = bed.burst(f"row{ROWS.index(one) + 1}", QUICK_MAILS.get(one.fault, one.mails) if quick else one.mails)
    try:
        return one, burst, one.act(bed, burst), None
    except LocalError as error:
        # The others can still show what they have to show.
        return one, burst, Broken(None), str(error)


def _judge(
    bed: Bed, one: Row, burst: Burst, broken: Broken, error: str | None, *, quick: bool, waiting: int, seconds: float
) -> dict[str, Any]:
    parked = {key: why for key, why in bed.parked().items() if key in burst.keys}
    evidence = Evidence(
        accepted=burst.accepted,
        arrivals=bed.arrivals(burst.keys),
        dead={key: why for key, why in bed.dead().items() if key in burst.keys},
        parked=parked,
        waiting=waiting,
        redelivered=bed.delivery.redelivered() & burst.keys,
        fault=broken.fault,
        losses=tuple(bed.redis.losses),
        paused=broken.paused,
        was_parked=len(burst.was_parked | parked.keys()),
        confirmed=bed.events.confirmed & burst.keys if one.events else frozenset(),
    )
    rules = Rules(
        limit_per_second=LIMIT,
        budget_per_second=bed.knobs.budget_per_second,
        allowance=one.allowance,
        lower_limit=one.lower_limit,
        checks=one.checks if quick else (*one.checks, *one.timed),
    )
    result = row(one.fault, evidence, rules)
    result["redelivered"] = len(evidence.redelivered)
    result["policies"] = {"redis_down": one.redis_down, "uncertain": one.uncertain, "events": one.events}
    result["seconds"] = round(seconds, 1)
    if error:
        result["failures"].insert(0, error)
    if evidence.accepted != burst.keys:
        result["failures"].append(f"the intake queues took {len(evidence.accepted)} of {len(burst.keys)}")
    return result


def _print(results: Sequence[dict[str, Any]]) -> None:
    table = Table(box=None, pad_edge=False)
    for name, heading in COLUMNS.items():
        table.add_column(heading, justify="left" if name == "fault" else "right", no_wrap=name != "fault")
    for result in results:
        values = ["–" if result[name] is None else str(result[name]) for name in COLUMNS]
        table.add_row(*values, style="red" if result["failures"] else None)
    # On a narrow terminal its lines wrap; the columns stay.
    Console(width=max(WIDTH, console.width), highlight=False).print(table)
    for result in results:
        explained = [duplicate for duplicate in result["duplicate_mails"] if duplicate["why"]]
        for duplicate in explained[:SHOWN]:
            console.print(f"{duplicate['mail']} went twice: {duplicate['why']}", soft_wrap=True)
        if len(explained) > SHOWN:
            console.print(
                f"and {len(explained) - SHOWN} more of {result['fault']!r}: see {shown(WRITTEN)}", soft_wrap=True
            )


def from_environment() -> int:
    """`make chaos QUICK=1 CHAOS_SEED=7 CHAOS_ROWS=killed`; the exit code."""
    given = os.environ.get("CHAOS_SEED", "").strip() or "1"
    if not given.isdecimal():
        raise LocalError(f"CHAOS_SEED={given}: give a whole number")
    return chaos(bool(os.environ.get("QUICK")), int(given), os.environ.get("CHAOS_ROWS", ""))
