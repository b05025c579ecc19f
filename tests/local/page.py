"""The demo's HTML page: the picture, the figures and what they mean. Pure, and without a script."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from typing import Any

MEANING = {
    "mails": "handed to the intake queues",
    "accepted": "that the intake queues took",
    "sent": "different mails that the provider accepted",
    "duplicates": "accepted by the provider more than once",
    "lost": "accepted by an intake queue, and never by the provider",
    "throttled": "requests that the provider refused as too many",
    "limit_per_second": "recipients a second that the provider allows",
    "budget_per_second": "recipients a second that the schedule books: headroom × limit",
    "peak_arrivals_per_second": "most recipients that reached the provider in any sliding second",
    "peak_grants_per_second": "most recipients that the guard let go in any sliding second",
    "drain_seconds": "first to last arrival",
    "ideal_seconds": "recipients ÷ limit",
    "utilisation": "ideal ÷ drain",
    "slot_error_ms": "arrival − booked slot",
    "priority_latency_ms": "urgent mail: handed in → arrival",
    "big_tenant_latency_ms": "bulk mail of the tenant that had more than the others: handed in → arrival",
    "rest_latency_ms": "the same over all of the others",
    "rest_p99_ms": "the same for each of them",
    "redis_calls_per_mail": "commands that the functions sent to Redis; those inside scripts apart",
}

STYLE = """
  :root { color-scheme: light dark; font: 15px/1.5 system-ui, sans-serif }
  body { max-width: 960px; margin: 2rem auto; padding: 0 1rem }
  svg { width: 100%; height: auto }
  table { border-collapse: collapse; margin: 1.5rem 0; width: 100% }
  td, th { padding: .3rem .8rem; border-bottom: 1px solid #8886; text-align: left; vertical-align: top }
  td.value { text-align: right; font-variant-numeric: tabular-nums; min-width: 12rem }
  td.meaning { opacity: .75 }
  code { font-size: .95em }
"""


def shown(value: Any) -> str:
    """A field's value as people read it."""
    if value is None:
        return "–"
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {shown(part)}" for name, part in value.items())
    return f"{value:,.4g}" if isinstance(value, float) and value < 1000 else f"{value:,}"


def html(result: Mapping[str, Any], picture: str) -> str:
    """One file that needs nothing else."""
    rows = "\n".join(
        f'<tr><td><code>{escape(name)}</code></td><td class="value">{escape(shown(value))}</td>'
        f'<td class="meaning">{escape(MEANING[name])}</td></tr>'
        for name, value in result.items()
    )
    return f"""<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<title>Sendslot demo</title>
<style>{STYLE}</style>
<h1>Sendslot demo</h1>
{picture}
<table>
{rows}
</table>
</html>
"""
