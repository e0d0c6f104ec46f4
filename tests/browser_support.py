"""A real browser for pages: Chromium as the system has it, or Playwright's own."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

_NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")


@contextmanager
def chromium() -> Iterator[Any]:
    """Start a browser; the test is skipped where there is none."""
    api = pytest.importorskip(
        "playwright.sync_api", reason="no browser test: pip install playwright"
    )
    found = next((path for name in _NAMES if (path := shutil.which(name))), None)
    with api.sync_playwright() as playwright:
        try:
            browser = playwright.chromium.launch(executable_path=found, args=["--no-sandbox"])
        except api.Error as e:
            reason = str(e).splitlines()[0]
            pytest.skip(f"no browser test: Chromium does not start ({reason})")
        yield browser
        browser.close()


@contextmanager
def opened(browser: Any, path: Path, **context: Any) -> Iterator[Any]:
    """Open a page whose console stays clean and that asks for nothing but itself."""
    said: list[str] = []
    asked: list[str] = []
    with browser.new_context(**{"viewport": {"width": 1400, "height": 900}, **context}) as tab:
        page = tab.new_page()
        page.on("console", lambda message: said.append(message.text))
        page.on("pageerror", lambda error: said.append(str(error)))
        page.on("request", lambda request: asked.append(request.url))
        page.goto(path.resolve().as_uri())
        yield page
    assert said == []
    assert [url for url in asked if not url.startswith(("file:", "blob:", "data:"))] == []
