"""The coverage figure: how often each kind of certificate fails in a world where the risk is known.

python docs/coverage.py          counts again (minutes), writes coverage.json and coverage.svg
python docs/coverage.py --draw   draws coverage.svg from coverage.json
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from scipy import stats

HERE = Path(__file__).parent
RUNS = 400
SIZES = (15, 40)
DELTAS = (0.05, 0.1, 0.2, 0.5)
KINDS = {
    "the theorem alone": "#35618f",
    "randomised": "#c2571a",
    "single": "#3d7a4a",
    "majority": "#8a4f8f",
    "classes": "#777",
}
BOUNDS = ("exact", "catoni", "best")
SIZE, MARGIN = (720, 380), (64, 20, 56, 60)  # left, right, top, bottom
TOP = 0.55


def count() -> list[dict[str, object]]:
    sys.path.insert(0, str(HERE.parent / "tests" / "certificates"))
    from known_world import failures

    return [
        {
            "kind": kind,
            "bound": bound,
            "m": m,
            "delta": delta,
            "runs": RUNS,
            "failures": failures(kind, m, delta, bound, RUNS),
        }
        for kind in KINDS
        for bound in BOUNDS
        for m in SIZES
        for delta in DELTAS
    ]


def draw(counts: list[dict]) -> str:
    """For each delta and kind the failures of the worst bound and m, with a 95 % interval, and the line allowed."""
    (width, height), (left, right, top, bottom) = SIZE, MARGIN
    inner, column = width - left - right, (width - left - right) / len(DELTAS)

    def y(rate: float) -> float:
        return height - bottom - (height - top - bottom) * min(rate, TOP) / TOP

    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}" '
        'font-family="sans-serif" font-size="13">',
        "<title>How often certificates fail, and how often they may</title>",
        '<rect width="100%" height="100%" fill="#fff"/>',
    ]
    for step in range(6):
        at = y(step / 10)
        lines.append(f'<line x1="{left}" x2="{width - right}" y1="{at:.1f}" y2="{at:.1f}" stroke="#ddd"/>')
        lines.append(f'<text x="{left - 8}" y="{at + 4:.1f}" text-anchor="end">{10 * step} %</text>')
    for number, (kind, colour) in enumerate(KINDS.items()):
        x = left + number * inner / len(KINDS)
        lines.append(f'<circle cx="{x + 6:.1f}" cy="22" r="5" fill="{colour}"/>')
        lines.append(f'<text x="{x + 16:.1f}" y="26">{kind}</text>')
    for place, delta in enumerate(DELTAS):
        start = left + place * column
        lines.append(
            f'<line x1="{start + 8:.1f}" x2="{start + column - 8:.1f}" y1="{y(delta):.1f}" y2="{y(delta):.1f}" '
            'stroke="#b00" stroke-width="2"/>'
        )
        middle = start + column / 2
        lines.append(
            f'<text x="{middle:.1f}" y="{height - bottom + 22}" text-anchor="middle">{100 * delta:g} % allowed</text>'
        )
        for number, (kind, colour) in enumerate(KINDS.items()):
            mine = [c for c in counts if (c["kind"], c["delta"]) == (kind, delta)]
            worst = max(mine, key=lambda c: c["failures"])
            found, runs = worst["failures"], worst["runs"]
            low = stats.beta.ppf(0.025, found, runs - found + 1) if found else 0.0
            high = stats.beta.ppf(0.975, found + 1, runs - found)
            x = start + (number + 1) * column / (len(KINDS) + 1)
            lines.append(f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{y(low):.1f}" y2="{y(high):.1f}" stroke="{colour}"/>')
            lines.append(f'<circle cx="{x:.1f}" cy="{y(found / runs):.1f}" r="5" fill="{colour}"/>')
    caption = (
        f"failures of the worst of {len(BOUNDS)} bounds and m = {', '.join(map(str, SIZES))}; {RUNS} data sets each"
    )
    lines.append(f'<text x="{width / 2}" y="{height - 12}" text-anchor="middle" fill="#555">{caption}</text>')
    return "\n".join([*lines, "</svg>"]) + "\n"


if __name__ == "__main__":
    if "--draw" not in sys.argv:
        (HERE / "coverage.json").write_text("\n".join(["[", ",\n".join(json.dumps(c) for c in count()), "]\n"]))
    (HERE / "coverage.svg").write_text(draw(json.loads((HERE / "coverage.json").read_text())))
