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
# Every name of this package that the reference mentions is in it; those of others are not looked up.
nitpicky = True
nitpick_ignore_regex = [("py:class", r"(collections\.abc|contextlib|numpy|os|pathlib|torch)\..+")]


def _readable_defaults(app, what, name, obj, options, signature, returns):
    """What a dataclass makes anew is written ``...``: Sphinx does not parse ``<factory>``, and would link no type."""
    return signature and signature.replace("<factory>", "..."), returns


def setup(app):
    app.connect("autodoc-process-signature", _readable_defaults)
