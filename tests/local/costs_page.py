"""The tables of `docs/costs.md`, in Markdown."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from .costing import (
    ACCOUNTS,
    MILLION,
    SEED_FREE_SQS,
    SEED_MAILS,
    Figures,
    Made,
    Part,
    Prices,
    batches,
    cache,
    fixed,
    gathered,
    memory_bytes,
    of_mail,
    parts,
    seed,
    waiting_seconds,
)
from .counting import EVENTBRIDGE


def money(dollars: float) -> str:
    """With cents, and more digits where there would be none to see."""
    if dollars and abs(dollars) < 0.1:
        return f"{dollars:.4f}" if abs(dollars) < 0.01 else f"{dollars:.3f}"
    return f"{dollars:,.2f}"


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table; all but the first column are figures."""
    lines = ["| " + " | ".join(head) + " |", "|---|" + "---:|" * (len(head) - 1)]
    return "\n".join([*lines, *("| " + " | ".join(row) + " |" for row in rows)]) + "\n"


def _counted(figures: Figures, prices: Prices) -> str:
    both = [{part.name: part for part in parts(stretch, prices)} for stretch in (figures.plain, figures.events)]
    names = list(both[1]) + [name for name in both[0] if name not in both[1]]

    def cells(name: str) -> list[str]:
        made = [found.get(name) for found in both]
        return [
            text for part in made for text in ((_amount(part), money(part.dollars * MILLION)) if part else ("", ""))
        ]

    rows = [[name, *cells(name)] for name in names]
    total = [f"**{money(of_mail(stretch, prices) * MILLION)}**" for stretch in (figures.plain, figures.events)]
    rows.append(["**this stack, a million mails**", "", total[0], "", total[1]])
    ses = money(prices["ses_mail"] * MILLION)
    rows.append(["SES itself, a million recipients", "1,000,000", ses, "1,000,000", ses])
    head = ["of a million mails", "without SES's events", "$", "with them", "$"]
    return table(head, rows)


def _amount(part: Part) -> str:
    much = part.amount * MILLION
    return f"{much:,.0f} {part.unit}" if much >= 100 else f"{much:,.3g} {part.unit}"


def _batches(figures: Figures, prices: Prices) -> str:
    rows = []
    for size in (10, 5, 2, 1):
        found = batches(figures, prices, size)
        rows.append([f"{size}", *map(money, found), f"**{money(sum(found))}**"])
    counted, most = gathered(figures, prices)
    held = figures.events.sqs(EVENTBRIDGE) * figures.events.batch("feedback")[0]
    return (
        table(["mails a batch", "SQS", "Lambda: time", "Lambda: invocations", "$ a million mails"], rows)
        + f"\nAll that SES's events take was counted as ${money(counted)} a million mails, with "
        f"{held:.1f} events an invocation. "
        f"With ten it would be ${money(most)}.\n"
    )


def _measured(figures: Figures) -> str:
    rows = []
    for name in ("reserve", "send", "feedback"):
        row = [name]
        for stretch in (figures.plain, figures.events):
            if runs := stretch.invocations.get(name):
                held, ms = stretch.batch(name)
                row += [f"{held:.2f}", f"{ms:.0f}", f"{runs.cold}"]
            else:
                row += ["", "", ""]
        rows.append(row)
    size = figures.plain.batch("send")[0]
    waits = 1000 * waiting_seconds(figures.rate_per_second, size)
    redis = [f"{stretch.redis_calls / stretch.mails:.3f}" for stretch in (figures.plain, figures.events)]
    return (
        table(
            ["", "mails an invocation", "billed ms", "cold starts", "with events: mails", "billed ms", "cold starts"],
            rows,
        )
        + f"\n{figures.mails:,} mails each time, at {figures.rate_per_second:g} a second; "
        f"{figures.plain.invocations['send'].memory_mb} MB a function. Of the time of send at least {waits:.0f} ms are "
        f"waiting for slots that follow each other. Commands to Redis a mail: {redis[0]}, with events {redis[1]}; and "
        f"{figures.clock.redis_calls:g} a minute by the clock. In Redis a mark takes {figures.mark_bytes} bytes, "
        f"a trace {figures.trace_bytes} and an event {figures.event_bytes}.\n"
    )


def _fixed(figures: Figures, made: Made, prices: Prices) -> str:
    rows = [[part.name, f"{part.amount:,.4g} {part.unit}" if part.amount < 100 else f"{part.amount:,.0f} {part.unit}",
             money(part.dollars)] for part in fixed(figures, made, prices)]  # fmt: skip
    kind, part = cache(figures, made, prices, ACCOUNTS[0].per_day, 14)
    rows.append([f"cache, {made.cache_nodes} nodes of {kind}", f"{part.amount:,.0f} {part.unit}", money(part.dollars)])
    total = part.dollars + sum(part.dollars for part in fixed(figures, made, prices))
    rows.append(["**a month, with the smallest cache**", "", f"**{money(total)}**"])
    return table(["a month", "", "$"], rows)


def _accounts(figures: Figures, made: Made, prices: Prices) -> str:
    days = prices["hours_month"] / 24
    always = sum(part.dollars for part in fixed(figures, made, prices))
    rows: dict[str, list[str]] = {}

    def put(name: str, text: str) -> None:
        rows.setdefault(name, []).append(text)

    for account in ACCOUNTS:
        mails = account.per_day * days
        variable = mails * of_mail(figures.events, prices)
        put("mails a month", f"{mails / MILLION:,.1f} million")
        put("what its mails cost here, SES's events with them, $", money(variable))
        put("endpoints, alarms, metrics, dashboard, pollers, schedules, $", money(always))
        for age in (14, 1):
            which = f"messages live {age} day{'s' if age > 1 else ''}"
            kind, part = cache(figures, made, prices, account.per_day, age)
            total = variable + always + part.dollars
            put(f"{which}: memory of the cache", _size(memory_bytes(figures, account.per_day, age)))
            put(f"{which}: {made.cache_nodes} nodes of", kind)
            put(f"{which}: cache, $", money(part.dollars))
            put(f"{which}: **this stack a month, $**", f"**{money(total)}**")
            put(f"{which}: a million mails, $", money(total / mails * MILLION))
        put("SES itself a month, $", money(mails * prices["ses_mail"]))
    head = ["", *(f"{one.name}: {one.per_second:,}/s, {one.per_day:,} a day" for one in ACCOUNTS)]
    return table(head, ([name, *texts] for name, texts in rows.items()))


def _size(size: float) -> str:
    return f"{size / 2**30:,.2f} GiB" if size < 10 * 2**30 else f"{size / 2**30:,.0f} GiB"


def _seed(figures: Figures, prices: Prices) -> str:
    """Its parts beside ours, a million mails."""
    per = MILLION / SEED_MAILS
    sqs, runs, seconds = (part * per for part in seed(prices))
    free = SEED_FREE_SQS * prices["sqs_request"] * per
    rows = [["SQS", money(sqs)], ["Lambda: invocations", money(runs)], ["Lambda: time", money(seconds)]]
    ours = []
    for stretch in (figures.plain, figures.events):
        grouped = stretch.grouped() * prices["sqs_fair_request_surcharge"]
        ours.append([
            stretch.sqs_requests() * prices["sqs_request"] + grouped,
            stretch.lambda_requests() * prices["lambda_request"],
            stretch.gb_seconds() * prices["lambda_gb_second"],
        ])  # fmt: skip
        ours[-1].append(of_mail(stretch, prices) - sum(ours[-1]))
    rows.append(["logs, endpoints' bytes", "left out"])
    for n, row in enumerate(rows):
        row += [money(column[n] * MILLION) for column in ours]
    totals = [f"**{money(of_mail(stretch, prices) * MILLION)}**" for stretch in (figures.plain, figures.events)]
    rows.append(["**a million mails**", f"**{money(sqs + runs + seconds)}**", *totals])
    rows.append(["… with the million free requests that it takes off", "", "", ""])
    rows[-1][1] = f"{money(sqs + runs + seconds + free)} without them"
    rows[-1][0] = "… the free requests that it takes off"
    return table(["$ a million mails", "the seed's example", "here, without SES's events", "here, with them"], rows)


def tables(figures: Figures, prices: Prices, made: Made | None = None) -> dict[str, str]:
    """The tables of `docs/costs.md`, by the name of their markers."""
    made = made or Made.by_template()
    return {
        "counted": _counted(figures, prices),
        "measured": _measured(figures),
        "seed": _seed(figures, prices),
        "batches": _batches(figures, prices),
        "fixed": _fixed(figures, made, prices),
        "accounts": _accounts(figures, made, prices),
    }


def written(text: str, found: Mapping[str, str]) -> str:
    """`text` with the tables between their markers."""
    for name, content in found.items():
        begin, end = f"<!-- {name} -->", f"<!-- /{name} -->"
        before, has_begin, rest = text.partition(begin)
        _, has_end, after = rest.partition(end)
        if not has_begin or not has_end:
            raise ValueError(f"found no {begin} and {end} to write between")
        text = f"{before}{begin}\n{content}{end}{after}"
    return text
