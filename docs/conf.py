"""Configuration of the documentation: it is built offline, and every warning is an error (`make docs`)."""

from sixfold import __version__

project = "Sixfold"
author = "The Sixfold contributors"
copyright = f"2026, {author}"
version = release = __version__

extensions = ["myst_parser"]
source_suffix = {".md": "markdown"}
exclude_patterns = ["_build"]
nitpicky = True
language = "en"

myst_enable_extensions = ["attrs_block", "attrs_inline", "colon_fence", "deflist", "fieldlist"]
myst_heading_anchors = 3  # `page.md#a-heading` works as a link, as it does on a code host

html_theme = "furo"
html_title = "Sixfold"
html_static_path = ["_static", "../src/sixfold/ui/static/fonts"]  # the pages' typefaces
html_css_files = ["sixfold.css"]
html_show_sphinx = False
html_copy_source = False
html_permalinks_icon = "#"
FONTS = {"font-stack": "var(--sixfold-text)", "font-stack--monospace": "var(--sixfold-code)"}
html_theme_options = {
    "navigation_with_keys": True,
    "light_css_variables": FONTS,
    "dark_css_variables": FONTS,
}
