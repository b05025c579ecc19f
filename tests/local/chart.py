"""Draws what arrived: recipients per second by lane, against the limit and the budget. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from .report import Arrival

WIDTH, HEIGHT = 960, 440
LEFT, RIGHT, TOP, BOTTOM = 64, 128, 92, 58
PLOT_WIDTH, PLOT_HEIGHT = WIDTH - LEFT - RIGHT, HEIGHT - TOP - BOTTOM
MOST_BARS = 150

# Bottom to top in a bar, and left to right in the legend.
SERIES = ("priority", "bulk", "throttled")

# One drawing for light and dark pages: the picture brings its own ground and follows the reader's scheme.
STYLE = """
  .ground { fill: #ffffff; stroke: #d0d7de }
  text { fill: #1f2328; font: 13px system-ui, -apple-system, "Segoe UI", Roboto, "Liberation Sans", sans-serif }
  .title { font-size: 19px; font-weight: 600 }
  .muted { fill: #59636e }
  .grid { stroke: #d0d7de; stroke-width: 1 }
  .axis { stroke: #818b98; stroke-width: 1 }
  .bulk { fill: #2f81f7 }
  .priority { fill: #e8860c }
  .throttled { fill: #d1242f }
  .limit { stroke: #cf222e; stroke-width: 2 }
  .budget { stroke: #1a7f37; stroke-width: 2; stroke-dasharray: 7 5 }
  .limit-text { fill: #cf222e; font-weight: 600 }
  .budget-text { fill: #1a7f37; font-weight: 600 }
  @media (prefers-color-scheme: dark) {
    .ground { fill: #0d1117; stroke: #30363d }
    text { fill: #e6edf3 }
    .muted { fill: #9198a1 }
    .grid { stroke: #262c34 }
    .axis { stroke: #656c76 }
    .bulk { fill: #4493f8 }
    .priority { fill: #f0a33c }
    .throttled, .limit-text { fill: #ff7b72 }
    .limit { stroke: #ff7b72 }
    .budget { stroke: #56d364 }
    .budget-text { fill: #56d364 }
  }
"""


def nice_step(span: float, most: int) -> float:
    """The smallest of 1, 2, 5 × 10ⁿ that cuts `span` into at most `most` parts."""
    power = 10 ** math.floor(math.log10(span / most))
    return next(power * factor for factor in (1, 2, 5, 10) if span / (power * factor) <= most)


def per_second(arrivals: Sequence[Arrival]) -> tuple[int, list[dict[str, float]]]:
    """(seconds a bar stands for, recipients per second in each bar by series)."""
    begin = min(arrival.at_ms for arrival in arrivals)
    seconds = (max(arrival.at_ms for arrival in arrivals) - begin) / 1000
    width = max(1, math.ceil(nice_step(seconds, MOST_BARS))) if seconds > MOST_BARS else 1
    bars = [dict.fromkeys(SERIES, 0.0) for _ in range(int(seconds / width) + 1)]
    for arrival in arrivals:
        series = "throttled" if arrival.outcome == "throttled" else arrival.lane
        bar = bars[int((arrival.at_ms - begin) / 1000 / width)]
        bar[series if series in SERIES else "bulk"] += arrival.recipients / width
    return width, bars


def svg(result: Mapping[str, Any], arrivals: Sequence[Arrival]) -> str:
    """The picture of a run; an empty plot if nothing arrived."""
    limit, budget = result["limit_per_second"], result["budget_per_second"]
    width, bars = per_second(arrivals) if arrivals else (1, [dict.fromkeys(SERIES, 0.0)])
    highest = max(limit, *(sum(bar.values()) for bar in bars))
    step_y = nice_step(highest * 1.05, 6)
    top = math.ceil(highest * 1.05 / step_y) * step_y
    seconds = len(bars) * width

    def x(at: float) -> float:
        return round(LEFT + at / seconds * PLOT_WIDTH, 2)

    def y(rate: float) -> float:
        return round(TOP + PLOT_HEIGHT * (1 - rate / top), 2)

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-labelledby="title">',
        f'<title id="title">{escape(title(result))}</title>',
        f"<style>{STYLE}</style>",
        f'<rect class="ground" x="0.5" y="0.5" width="{WIDTH - 1}" height="{HEIGHT - 1}" rx="10"/>',
        f'<text class="title" x="24" y="38">{escape(title(result))}</text>',
        f'<text class="muted" x="24" y="62">{escape(subtitle(result))}</text>',
    ]
    parts += _grid(top, step_y, seconds, x, y)
    gap = min(2.0, PLOT_WIDTH / len(bars) / 6)
    for index, bar in enumerate(bars):
        base = 0.0
        for series in SERIES:
            if bar[series]:
                left, right = x(index * width) + gap / 2, x((index + 1) * width) - gap / 2
                upper, lower = y(base + bar[series]), y(base)
                parts.append(
                    f'<rect class="{series}" x="{left:.2f}" y="{upper}" '
                    f'width="{right - left:.2f}" height="{lower - upper:.2f}"/>'
                )
                base += bar[series]
    parts += _lines(limit, budget, y)
    parts += _legend([series for series in SERIES if any(bar[series] for bar in bars)])
    unit = "recipients per second" if width == 1 else f"recipients per second (mean of {width} s)"
    parts += [
        f'<text class="muted" x="{LEFT + PLOT_WIDTH / 2}" y="{HEIGHT - 14}" text-anchor="middle">'
        "seconds since the first arrival at the provider</text>",
        f'<text class="muted" transform="translate(20 {TOP + PLOT_HEIGHT / 2}) rotate(-90)" text-anchor="middle">'
        f"{unit}</text>",
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def title(result: Mapping[str, Any]) -> str:
    """What happened, in one line."""
    zeros = ", ".join(f"{result[name]:,} {word}" for name, word in _BAD)
    return f"{result['sent']:,} of {result['mails']:,} mails sent, {zeros}"


_BAD = (("throttled", "throttled"), ("duplicates", "twice"), ("lost", "lost"))


def subtitle(result: Mapping[str, Any]) -> str:
    """The figures beside it."""
    figures = [
        f"in {result['drain_seconds']:,.1f} s, {result['utilisation']:.1%} of the limit's pace"
        if result["utilisation"]
        else "",
        f"at most {result['peak_arrivals_per_second']:,} arrivals in any second",
    ]
    if result["priority_latency_ms"]["p99"] is not None:
        figures.append(f"priority mail within {result['priority_latency_ms']['p99'] / 1000:.1f} s (p99)")
    return " · ".join(filter(None, figures))


def _grid(top: float, step_y: float, seconds: int, x: Any, y: Any) -> list[str]:
    parts = []
    for index in range(round(top / step_y) + 1):
        rate = index * step_y
        kind = "grid" if index else "axis"
        parts.append(f'<line class="{kind}" x1="{LEFT}" x2="{LEFT + PLOT_WIDTH}" y1="{y(rate)}" y2="{y(rate)}"/>')
        parts.append(f'<text class="muted" x="{LEFT - 8}" y="{y(rate) + 4.5:g}" text-anchor="end">{rate:g}</text>')
    step_x = max(1, nice_step(seconds, 10))
    for index in range(int(seconds / step_x) + 1):
        at = index * step_x
        parts.append(f'<line class="axis" x1="{x(at)}" x2="{x(at)}" y1="{y(0)}" y2="{y(0) + 5}"/>')
        parts.append(f'<text class="muted" x="{x(at)}" y="{y(0) + 20}" text-anchor="middle">{at:g}</text>')
    return parts


def _lines(limit: float, budget: float, y: Any) -> list[str]:
    """The two lines, and their names kept from running into each other."""
    right = LEFT + PLOT_WIDTH
    limit_text = y(limit) + (4.5 if y(budget) - y(limit) >= 18 else -3)
    budget_text = max(y(budget) + 4.5, limit_text + 18)
    return [
        f'<line class="budget" x1="{LEFT}" x2="{right}" y1="{y(budget)}" y2="{y(budget)}"/>',
        f'<line class="limit" x1="{LEFT}" x2="{right}" y1="{y(limit)}" y2="{y(limit)}"/>',
        f'<text class="limit-text" x="{right + 8}" y="{limit_text:g}">limit {limit:g}/s</text>',
        f'<text class="budget-text" x="{right + 8}" y="{budget_text:g}">budget {budget:g}/s</text>',
    ]


def _legend(shown: list[str]) -> list[str]:
    parts = []
    right = WIDTH - 24
    for series in reversed(shown):
        right -= 7.4 * len(series)
        parts.append(f'<text x="{right:g}" y="38">{series}</text>')
        parts.append(f'<rect class="{series}" x="{right - 19:g}" y="27" width="13" height="13" rx="3"/>')
        right -= 36
    return parts
