"""What a run hands in: made up, or read from a CSV or JSON Lines file."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .errors import LocalError
from .knobs import Knobs
from .report import Key

URGENT_PER_SECOND = 2
_TENANT = re.compile(r"[A-Za-z0-9_-]{1,64}")
_LISTS = ("to", "cc", "bcc", "reply_to")
_PLAIN = ("send_id", "tenant", "lane", "from", "expires_at")
_SIMPLE = ("subject", "text", "html")


@dataclass(frozen=True)
class Mail:
    """One message for an intake queue."""

    key: Key
    lane: str
    body: str
    recipients: int


def of_request(request: dict[str, Any]) -> Mail:
    """A message from a producer's request. What else is wrong with it is for `reserve` to say."""
    key = (str(request.get("tenant", "")), str(request.get("send_id", "")))
    body = json.dumps(request, ensure_ascii=False, separators=(",", ":"))
    recipients = sum(len(request.get(name) or ()) for name in ("to", "cc", "bcc"))
    return Mail(key=key, lane=str(request.get("lane") or "bulk"), body=body, recipients=recipients)


def made_up(lane: str, number: int, tenant: str) -> Mail:
    """A small mail to one made-up recipient."""
    return of_request(
        {
            "send_id": f"{lane}-{number:07}",
            "tenant": tenant,
            "lane": lane,
            "from": "Sendslot demo <demo@example.com>",
            "to": [f"reader-{number}@example.com"],
            "content": {"simple": {"subject": f"Mail {number}", "text": f"This is mail {number} of the demo.\n"}},
        }
    )


@dataclass(frozen=True)
class Plan:
    """What will be handed in."""

    #: All at once, at the start.
    burst: list[Mail]
    #: Evenly, two a second, behind the burst.
    urgent: list[Mail]
    #: Evenly from the start of the burst on, through its drain: with SKEW, all but the big tenant's.
    trickle: list[Mail]
    #: Seconds from one of them to the next.
    trickle_seconds: float
    tenants: list[str]
    #: The tenant that has more than the others, if one has.
    big: str | None

    def __len__(self) -> int:
        return len(self.burst) + len(self.urgent) + len(self.trickle)

    @property
    def recipients(self) -> int:
        """To, Cc and Bcc of all of them."""
        return sum(mail.recipients for mail in self.burst + self.urgent + self.trickle)

    @classmethod
    def of(cls, knobs: Knobs) -> Plan:
        """The messages that the knobs ask for, spread over the tenants in turn, or as SKEW says."""
        names = knobs.tenant_names()
        trickle: list[Mail] = []
        if knobs.skewed:
            others = names[1:]
            count = knobs.mails_of_each_other * len(others)
            at_once = knobs.mails - count
            burst = [made_up("bulk", n, names[0]) for n in range(at_once)]
            trickle = [made_up("bulk", at_once + n, others[n % len(others)]) for n in range(count)]
        elif knobs.file:
            burst = list(read(knobs.file, names[0]))
            names = sorted({mail.key[0] for mail in burst})
        else:
            burst = [made_up("bulk", n, names[n % len(names)]) for n in range(knobs.mails)]
        urgent = [made_up("priority", n, names[n % len(names)]) for n in range(knobs.priority)]
        return cls(
            burst=burst,
            urgent=urgent,
            trickle=trickle,
            trickle_seconds=knobs.mails / knobs.budget_per_second / len(trickle) if trickle else 0.0,
            tenants=names,
            big=names[0] if knobs.skewed else None,
        )


def read(path: Path, tenant: str) -> Iterator[Mail]:
    """The requests in a file. Rows without a tenant are `tenant`'s."""
    rows = _csv if path.suffix.lower() == ".csv" else _json_lines
    seen: dict[Key, int] = {}
    for line, request in rows(path):
        request.setdefault("tenant", tenant)
        mail = of_request(request)
        where = f"{path}, line {line}"
        if not _TENANT.fullmatch(mail.key[0]):
            raise LocalError(f"{where}: tenant {mail.key[0]!r} is not 1 to 64 of the characters A-Z a-z 0-9 _ -")
        if mail.lane not in ("bulk", "priority"):
            raise LocalError(f"{where}: lane {mail.lane!r} has no queue: write bulk or priority")
        if not mail.key[1]:
            raise LocalError(f"{where}: no send_id: give each mail one of its own")
        if mail.key in seen:
            raise LocalError(f"{where}: send_id {mail.key[1]!r} is on line {seen[mail.key]} already")
        seen[mail.key] = line
        yield mail
    if not seen:
        raise LocalError(f"{path}: no requests in it")


def _json_lines(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    with path.open(encoding="utf-8") as file:
        for line, text in enumerate(file, start=1):
            if not text.strip():
                continue
            try:
                request = json.loads(text)
            except json.JSONDecodeError as error:
                raise LocalError(f"{path}, line {line}: not JSON: {error.msg} at column {error.colno}") from error
            if not isinstance(request, dict):
                raise LocalError(f"{path}, line {line}: not a JSON object")
            yield line, request


def _csv(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """Columns as in a request; lists split at `;`; `template` with `data.NAME` columns, or
    `subject`, `text`, `html`."""
    with path.open(encoding="utf-8-sig", newline="") as file:
        reader = csv.DictReader(file)
        known = {*_LISTS, *_PLAIN, *_SIMPLE, "template"}
        for name in reader.fieldnames or []:
            if name not in known and not name.startswith("data."):
                raise LocalError(f"{path}: column {name!r} is not one of {', '.join(sorted(known))}, data.NAME")
        for row in reader:
            if None in row:
                raise LocalError(f"{path}, line {reader.line_num}: more fields than columns")
            given = {name: value for name, value in row.items() if value}
            request: dict[str, Any] = {name: given[name] for name in _PLAIN if name in given}
            for name in _LISTS:
                if name in given:
                    request[name] = [part.strip() for part in given[name].split(";") if part.strip()]
            if "template" in given:
                data = {name[5:]: value for name, value in given.items() if name.startswith("data.")}
                request["content"] = {"template": {"name": given["template"], "data": data}}
            else:
                request["content"] = {"simple": {name: given[name] for name in _SIMPLE if name in given}}
            yield reader.line_num, request
