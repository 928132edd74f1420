"""The documentation site: ``make docs``."""

project = "pacbayes"
author = "the authors of pacbayes"
copyright = author
extensions = ["myst_parser", "sphinx.ext.autodoc"]
html_theme = "furo"
html_title = "pacbayes"
# Nothing is fetched from elsewhere when the pages are read.
html_show_sphinx = False
exclude_patterns = ["_build"]
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_preserve_defaults = True
myst_heading_anchors = 3
myst_enable_extensions = ["deflist"]
