"""How Sphinx prints the book."""

import os
import sys
from importlib.metadata import version as version_of
from pathlib import Path

EXTENSIONS = Path(__file__).parent / "_ext"
sys.path.insert(0, str(EXTENSIONS))
import site_pages  # noqa: E402

# What is drawn and counted here is the device as it is without settings: held
# work, for example, could never be drawn where all launches wait.
for name in [name for name in os.environ if name.startswith("OPENREG_")]:
    del os.environ[name]
os.environ["KINETO_LOG_LEVEL"] = "6"  # it would tell of each profile

project = "The OpenReg Book"
author = "The OpenReg Book authors"
version = release = version_of("torch_openreg")

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx_copybutton",
    "sphinx_tabs.tabs",
    "listing",
    "footer",
    "silent",
    "site_pages",
]
# What reads a page decides what it becomes: all are read anew for a new one,
# and for a new word of the glossary, which each may use; not for its meaning.
printed_by = [path.read_text() for path in sorted(EXTENSIONS.glob("*.py"))]
printed_by += site_pages.terms(Path(__file__).parent)
exclude_patterns = ["_build", "tests"]

nitpicky = True
# Names of Python and PyTorch are not linked: no inventory is fetched.
nitpick_ignore_regex = [
    ("py:.*", r"(?!torch\.openreg|torch_openreg).*"),
    ("py:.*", r".*\._\w+"),  # private, so the reference leaves it out
    ("(c|cpp):.*", r".*"),  # types of PyTorch, of C++ and of other headers
]

myst_enable_extensions = ["attrs_inline", "colon_fence", "deflist"]
myst_heading_anchors = 3

# In docstrings, as in Markdown, `name` is code.
default_role = "code"
autodoc_member_order = "bysource"
autodoc_typehints_format = "short"

sphinx_tabs_disable_tab_closing = True
sphinx_tabs_disable_css_loading = True  # book.css has their style
copybutton_prompt_text = r">>> |\.\.\. |\$ |> "
copybutton_prompt_is_regexp = True

# Where the site will stand and where its sources do, if anywhere: with them
# pages get absolute addresses, a site map, and links that lead to an editor.
html_baseurl = os.environ.get("BOOK_URL", "")
repository = os.environ.get("BOOK_REPOSITORY", "")

# Figures with a caption are counted through the whole book.
numfig = True
numfig_format = {"figure": "Figure %s."}

html_theme = "furo"
html_theme_options: dict[str, object] = {"top_of_page_buttons": ["edit"]}
if repository:
    html_theme_options |= {
        "source_repository": repository,
        "source_branch": os.environ.get("BOOK_BRANCH", "main"),
        "source_directory": "book/",
    }
html_title = project
html_context = {"html_baseurl": html_baseurl}  # for templates
html_favicon = "_static/favicon.svg"
html_static_path = ["_static"]
templates_path = ["_templates"]
html_css_files = ["book.css"]
html_js_files = [("book.js", {"defer": "defer"})]
html_codeblock_linenos_style = "inline"
html_copy_source = False
html_show_sourcelink = False
html_show_copyright = False
pygments_style = "default"
pygments_dark_style = "github-dark-high-contrast"
