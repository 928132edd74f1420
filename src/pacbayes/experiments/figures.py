"""The paper's figures, drawn from the result files."""

from __future__ import annotations

import io
from typing import Any

import numpy as np

from pacbayes.bounds.binary_kl import kl_inverse
from pacbayes.errors import InvalidInput

# The paper leaves out what lies above.
HIGHEST = 0.285
_COLOURS = {"McAll": "#7a848e", "lbd": "#cf8a1b", "quad": "#b4472a", "invKL": "#1d5c96"}
_MARKERS = {"S": "x", "G": "o"}


def grid_figure(records: list[dict[str, Any]]) -> bytes:
    """Figure 2: each training's bound, in a column for its momentum, kappa and initial variance. SVG."""
    plt = _pyplot()
    settings = sorted({_setting(r) for r in records})
    place = {setting: i for i, setting in enumerate(settings)}
    figure, axes = plt.subplots(figsize=(10, 4.6))
    hidden = 0
    for method, marker in _MARKERS.items():
        for number, (objective, colour) in enumerate(_COLOURS.items()):
            chosen = [r for r in records if (r["method"], r["objective"]) == (method, objective)]
            shown = [r for r in chosen if r["risk_bound"] <= HIGHEST]
            hidden += len(chosen) - len(shown)
            # A little to the side, so that equal bounds do not cover each other.
            x = [place[_setting(r)] + 0.16 * (number - 1.5) for r in shown]
            axes.scatter(
                x, [r["risk_bound"] for r in shown], marker=marker, color=colour, s=22, label=f"{method} {objective}"
            )
    for edge in range(1, len(settings)):
        axes.axvline(edge - 0.5, color="#e8ebed", linewidth=0.8, zorder=0)
    axes.set_xticks(
        range(len(settings)), [f"{m:g}\n{k:g}\n{v:.0e}".replace("e-0", "e-") for m, k, v in settings], fontsize=7
    )
    axes.set_xlabel("momentum, κ, initial variance")
    axes.set_ylabel("bound")
    axes.set_title(f"{hidden} of {len(records)} trainings lie above {HIGHEST} and are not shown", fontsize=9)
    axes.legend(ncols=4, fontsize=8, loc="upper center", bbox_to_anchor=(0.5, -0.24), frameon=False)
    return _svg(figure)


def affine_figure(record: dict[str, Any]) -> bytes:
    """Figures 1, SM1, SM2: histogram of the estimated risk above the bound and its tangent there. SVG."""
    plt = _pyplot()
    mean, sd, pen = record["mean"], record["sd"], record["penalty"]
    bars = record["histogram"]
    edges = np.linspace(bars["low"], bars["high"], len(bars["counts"]) + 1)
    figure, (whole, top, zoom) = plt.subplots(
        3, 1, figsize=(6.4, 7.2), gridspec_kw={"height_ratios": [3, 1, 3]}, layout="constrained"
    )
    reach = min(1.0, max(10 * mean, 0.1))
    for axes, (low, high) in ((whole, (0.0, reach)), (zoom, (edges[0], edges[-1]))):
        risks = np.linspace(low, high, 200)
        axes.plot(risks, [kl_inverse(float(q), pen) for q in risks], color=_COLOURS["invKL"], label="bound B1")
        tangent = record["bound"] + record["slope"] * (risks - mean)
        axes.plot(risks, tangent, "--", color=_COLOURS["quad"], label="linearised")
        axes.errorbar([mean], [record["bound"]], xerr=2 * sd, fmt="ko", ecolor="#3a8f4d", capsize=3, markersize=4)
        axes.set_ylabel("bound")
        axes.set_xlim(low, high)
    whole.legend(frameon=False)
    whole.axvspan(edges[0], edges[-1], color="#e8ebed", zorder=0)
    top.stairs(bars["counts"], edges, fill=True, color=_COLOURS["McAll"])
    top.set_xlim(edges[0], edges[-1])
    top.set_yticks([])
    top.set_ylabel("realisations")
    zoom.set_xlabel("estimated empirical risk")
    variation = 100 * record["slope_variation"]
    whole.set_title(f"{record['realisations']} realisations; over ±2 sd the slope varies by ±{variation:.1f} %")
    return _svg(figure)


def _setting(record: dict[str, Any]) -> tuple[float, float, float]:
    return record["momentum"], record["kappa"], record["prior_variance"]


def _pyplot() -> Any:
    try:
        import matplotlib
    except ImportError:
        raise InvalidInput("figures need matplotlib: pip install 'pacbayes[figures]'") from None
    matplotlib.use("Agg")
    # The same bytes for the same numbers.
    matplotlib.rcParams.update({"svg.hashsalt": "pacbayes", "svg.fonttype": "none", "axes.spines.top": False,
                                "axes.spines.right": False, "font.size": 9})  # fmt: skip
    from matplotlib import pyplot

    return pyplot


def _svg(figure: Any) -> bytes:
    file = io.BytesIO()
    figure.savefig(file, format="svg", metadata={"Date": None}, bbox_inches="tight")
    _pyplot().close(figure)
    return file.getvalue()
