"""The atlas in a cell of a notebook."""

from html import escape
from pathlib import Path

from graphlog.errors import DataError


class Page:
    """A page that notebooks show in a frame of its own."""

    def __init__(self, html: str, height: int) -> None:
        self.html = html
        self.height = height

    def _repr_html_(self) -> str:
        return (
            f'<iframe srcdoc="{escape(self.html)}" width="100%" height="{self.height}" '
            'sandbox="allow-scripts allow-downloads" style="border:0"></iframe>'
        )


def show(atlas: str | Path, height: int = 720) -> Page:
    """Show the atlas that ``graphlog prototypes`` wrote, as the last line of a notebook's cell.

    The page is put into the notebook whole, so that it is still there when the notebook is sent on.

    Args:
        atlas: The file ``atlas.html``, or its folder.
        height: In pixels.

    Raises:
        DataError: If there is no such file.
    """
    path = Path(atlas)
    path = path / "atlas.html" if path.is_dir() else path
    try:
        return Page(path.read_text(encoding="utf-8"), height)
    except FileNotFoundError:
        raise DataError(
            f"no such file: {path}; write it with graphlog prototypes RUN -o DIR."
        ) from None
    except (OSError, UnicodeDecodeError) as e:
        raise DataError(f"{path}: not a page that can be shown ({e}).") from None
