"""How the site is built: ``make docs``. Everything it needs comes with it, so the pages open from disk."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "_ext"))

from bocl.version import __version__

project = "bocl"
version = release = __version__
project_copyright = "The BOCL developers"

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx_copybutton", "generated_pages"]
exclude_patterns = ["_build"]
myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 3

autodoc_preserve_defaults = True  # GrowthSettings() rather than all its fields
autodoc_type_aliases = {"Callback": "Callback", "Widths": "Widths"}  # a name rather than what it stands for
autodoc_typehints_format = "short"
autodoc_member_order = "bysource"
autoclass_content = "both"  # what a class is, then what it is given
python_maximum_signature_line_length = 88

html_theme = "furo"
html_title = "bocl"
html_static_path = ["_static"]
html_css_files = ["bocl.css"]
html_copy_source = False
html_show_sourcelink = False
pygments_style = "friendly"
pygments_dark_style = "github-dark"
copybutton_prompt_text = "$ "
