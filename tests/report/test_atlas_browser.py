"""The atlas as a reader uses it, in Chromium: hover, click, zoom, drag, search, keys, CSV."""

import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from cli_support import read_table
from downstream_support import CHAINS
from graphlog.report.prototypes import write_prototypes
from graphs_support import ring_store

pytestmark = pytest.mark.browser


_NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """Chromium as the system has it, or Playwright's own; without either, tests are skipped."""
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
        page.wait_for_selector("body[data-ready]")
        yield page
    assert said == []
    assert [url for url in asked if not url.startswith(("file:", "blob:", "data:"))] == []


@pytest.fixture(scope="module")
def molecules(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An atlas of named molecules, fewer of them on the map than in the collection."""
    out = tmp_path_factory.mktemp("atlas")
    lines = [f"{smiles},CPD-{k:03d}" for k, smiles in enumerate(CHAINS)]
    (out / "in.csv").write_text("\n".join(["smiles,compound id", *lines]) + "\n")
    write_prototypes("random", out / "tree", out / "in.csv", fit=True, graphs=30)
    return out / "tree"


@pytest.fixture
def page(browser: Any, molecules: Path) -> Iterator[Any]:
    with opened(browser, molecules / "atlas.html") as page:
        yield page


def _colors(page: Any) -> set[str]:
    return set(
        page.eval_on_selector_all("#map circle", "all => all.map(c => c.getAttribute('fill'))")
    )


def _saved(page: Any, button: str) -> list[dict[str, str]]:
    with page.expect_download() as download:
        page.click(button)
    return read_table(Path(download.value.path()))


def test_it_shows_tree_map_and_groups(page: Any):
    assert page.locator("#map circle").count() == 30
    assert page.locator("#tree rect").count() > 3
    assert page.locator("#detail h2").first.inner_text() == "Groups"
    assert page.locator("#strangers figure svg").count() == 12
    heights = page.eval_on_selector_all(
        "#tree rect", "all => all.map(r => +r.getAttribute('height'))"
    )
    assert min(heights) >= 12


def test_hovering_draws_the_structure(page: Any):
    page.locator("#map circle").nth(3).hover(force=True)
    assert page.locator("#tip").is_visible()
    assert page.locator("#tip svg").count() == 1
    assert "CPD-" in page.locator("#tip").inner_text()


def test_a_click_selects_the_molecule_and_its_group(page: Any, molecules: Path):
    dot = page.locator("#map circle").nth(7)
    point = page.evaluate(f"atlas.map[{dot.get_attribute('data-index')}]")
    dot.click(force=True)
    detail = page.locator("#detail").inner_text()
    assert f"CPD-{point['row']:03d}" in detail
    assert f"({point['path']})" in detail or f"prototype {point['path']}" in detail
    assert page.url.endswith(f"#{point['path']}")
    assert page.locator("#detail .picked svg").first.is_visible()
    assert read_table(molecules / "members.csv")[point["row"]]["path"] == point["path"]


def test_wheel_keys_and_drag_move_the_map(page: Any):
    def view() -> list[float]:
        return [float(v) for v in page.get_attribute("#map", "viewBox").split()]

    start, box = view(), page.locator("#map").bounding_box()
    page.mouse.move(box["x"] + box["width"] / 4, box["y"] + box["height"] / 4)
    page.mouse.wheel(0, -300)
    page.wait_for_function(
        "document.getElementById('map').getAttribute('viewBox').endsWith('620') === false"
    )
    zoomed = view()
    assert zoomed[2] < start[2]
    # the place under the pointer stays where it is
    assert zoomed[0] + zoomed[2] / 4 == pytest.approx(start[0] + start[2] / 4, abs=1)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] / 4 + 60, box["y"] + box["height"] / 4 + 30, steps=4)
    page.mouse.up()
    dragged, ratio = view(), zoomed[2] / box["width"]
    assert dragged[0] == pytest.approx(zoomed[0] - 60 * ratio, abs=1)
    assert dragged[1] == pytest.approx(zoomed[1] - 30 * ratio, abs=1)
    assert page.evaluate("chosen") == ""  # a drag is no click
    page.focus("#map")
    page.keyboard.press("+")
    assert view()[2] < dragged[2]
    page.keyboard.press("ArrowRight")
    assert view()[0] > dragged[0]
    page.keyboard.press("0")
    assert view() == start
    page.mouse.wheel(0, 300)
    page.click("#reset")
    assert view() == start


@pytest.mark.parametrize("wanted", ["CPD-041", "cpd-041", "41", CHAINS[41]])
def test_search_finds_rows_names_and_texts_of_the_whole_collection(
    page: Any, molecules: Path, wanted: str
):
    page.fill("#search", wanted)
    hits = page.locator("#found li")
    assert f"CPD-041 {CHAINS[41]}" in " ".join(hits.all_inner_texts())
    page.press("#search", "Enter")
    members = read_table(molecules / "members.csv")
    assert page.evaluate("chosen") in {row["path"] for row in members}
    page.fill("#search", "nothing has this text")
    assert hits.count() == 0
    assert "0 found" in page.locator("#scale").inner_text()


def test_the_selection_is_saved_as_csv(page: Any, molecules: Path):
    members = read_table(molecules / "members.csv")
    everyone = _saved(page, "#csv")
    assert [(r["row"], r["path"]) for r in everyone] == [(m["row"], m["path"]) for m in members]
    assert [r["text"] for r in everyone] == list(CHAINS)
    assert everyone[5]["id"] == "CPD-005"
    page.fill("#search", "O")
    found = _saved(page, "#csv")
    assert [int(r["row"]) for r in found] == [k for k, s in enumerate(CHAINS) if "O" in s]
    page.evaluate("choose(atlas.nodes.find(n => n.members && n.path.split('/').length === 2).path)")
    group = page.evaluate("chosen")
    inside = _saved(page, "#detail .action")
    assert [r["row"] for r in inside] == [
        m["row"] for m in members if m["path"].startswith(f"{group}/")
    ]


def test_arrow_keys_move_in_the_tree(page: Any):
    page.locator("#tree rect").first.focus()
    page.keyboard.press("ArrowRight")
    inner = page.evaluate("chosen")
    page.keyboard.press("ArrowRight")
    assert page.evaluate("chosen").startswith(inner)
    page.keyboard.press("ArrowLeft")
    page.keyboard.press("ArrowDown")
    assert page.evaluate("chosen").count("/") == inner.count("/")
    assert page.evaluate("document.activeElement.dataset.path") == page.evaluate("chosen")


def test_the_map_is_colored_by_what_is_chosen_and_a_bar_tells_the_ends(page: Any):
    colors, groups = _colors(page), page.locator("#legend .swatch")
    assert groups.count() == page.evaluate("colored.length")
    page.select_option("#color", label="novelty")
    assert _colors(page) != colors
    page.select_option("#color", label="heavy atoms")
    assert len(_colors(page)) > 3
    bar, words = page.locator("#legend .ramp"), page.locator("#legend").inner_text().split()
    assert bar.bounding_box()["width"] > 60
    sizes = [sum(c.isalpha() for c in CHAINS[p["row"]]) for p in page.evaluate("atlas.map")]
    ends = [float(word) for word in words if word.replace(".", "").isdigit()]
    assert ends == [min(sizes), max(sizes)]
    assert groups.count() == 0


def test_rows_go_by_their_own_names_everywhere(page: Any):
    page.evaluate("choose(atlas.nodes.find(n => n.members && n.typical.length).path)")
    assert page.locator("figcaption").count() > 12
    assert "row " not in " ".join(page.locator("figcaption").all_inner_texts())
    page.locator("#strangers figure").first.hover()
    assert page.locator("#tip").inner_text().startswith("CPD-")


def test_groups_go_by_their_chemistry(page: Any):
    child = page.evaluate("atlas.nodes.find(n => n.parent && byPath.get(n.parent).title).path")
    above = page.evaluate("path => byPath.get(byPath.get(path).parent)", child)
    for path, words in ((child, above["title"]), (above["path"], f"{above['title']} (")):
        page.evaluate("path => choose(path)", path)
        crumbs = page.locator("#detail p.crumbs").inner_text()
        assert words in crumbs
        assert crumbs.endswith((path, f"({path})"))


def test_a_hover_tells_the_whole_of_what_is_cut(page: Any):
    name = "a name that is longer than any block of the tree has room for, whatever the window"
    page.evaluate(f"atlas.nodes.forEach(node => {{ node.title = '{name}'; }}); drawTree()")
    cut = page.locator("#tree text", has_text="…").first
    assert name not in cut.text_content()
    box = cut.bounding_box()
    page.mouse.move(box["x"] + 5, box["y"] + box["height"] / 2)
    assert name in page.locator("#tip").inner_text()


def test_a_script_that_comes_with_the_data_does_not_run(browser: Any, tmp_path: Path):
    wicked = "CCO |$<img src=x onerror=\"document.title='bad'\">$|"
    write_prototypes("random", tmp_path, [wicked, *CHAINS], fit=True)
    with opened(browser, tmp_path / "atlas.html") as page:
        page.fill("#search", "onerror")
        page.press("#search", "Enter")
        assert page.title() == "Atlas of prototypes"
    policy = re.search(
        r'Content-Security-Policy" content="([^"]*)"', (tmp_path / "atlas.html").read_text()
    )
    assert policy[1].startswith("default-src 'none'; script-src 'sha256-")


@pytest.mark.parametrize("look", ["light", "dark"])
@pytest.mark.parametrize("width", [1400, 900, 390])
def test_it_fits_any_window(browser: Any, molecules: Path, look: str, width: int):
    size = {"width": width, "height": 800}
    with opened(browser, molecules / "atlas.html", color_scheme=look, viewport=size) as page:
        page.evaluate("choose(atlas.nodes.find(n => n.members).path)")
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        paper = page.evaluate("getComputedStyle(document.body).backgroundColor")
        assert (sum(int(c) for c in re.findall(r"\d+", paper)[:3]) > 380) == (look == "light")


def test_graphs_of_any_kind_have_an_atlas(browser: Any, tmp_path: Path):
    write_prototypes("random", tmp_path / "tree", ring_store(tmp_path), fit=True)
    with opened(browser, tmp_path / "tree" / "atlas.html") as page:
        assert page.locator("#strangers figure circle").count() > 12
        page.locator("#map circle").first.click(force=True)
        assert page.locator("#detail .picked svg").count() == 1
        assert len(_saved(page, "#csv")) >= 1
