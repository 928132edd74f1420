"""Reports: a run as a page or a model card, its bound as a picture, and runs side by side."""

from pacbayes.report.card import model_card
from pacbayes.report.comparison import COLUMNS, Compared, compare_runs, warnings, write_comparison
from pacbayes.report.decomposition import Part, decomposition, write_picture
from pacbayes.report.page import write_report

__all__ = [
    "COLUMNS",
    "Compared",
    "Part",
    "compare_runs",
    "decomposition",
    "model_card",
    "warnings",
    "write_comparison",
    "write_picture",
    "write_report",
]
