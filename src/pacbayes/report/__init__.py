"""Reports: a run's certificate, history and evaluation as one page, and its bound as a picture."""

from pacbayes.report.decomposition import Part, decomposition, decomposition_svg, write_picture
from pacbayes.report.page import write_report

__all__ = ["Part", "decomposition", "decomposition_svg", "write_picture", "write_report"]
