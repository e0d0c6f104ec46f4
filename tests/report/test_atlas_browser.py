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


def _search(page: Any, wanted: str) -> None:
    page.fill("#search", wanted)
    page.press("#search", "End")
    page.wait_for_timeout(400)  # it waits for the last key


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
    assert f"#{point['path']}" in detail or f"prototype {point['path']}" in detail
    assert page.url.endswith(f"#{point['path']}")
    assert page.locator("#detail .picked svg").first.is_visible()
    assert read_table(molecules / "members.csv")[point["row"]]["path"] == point["path"]


def test_wheel_keys_and_drag_move_the_map(page: Any):
    def view() -> list[float]:
        return [float(v) for v in page.get_attribute("#map", "viewBox").split()]

    start, box = view(), page.locator("#map").bounding_box()
    page.mouse.move(box["x"] + box["width"] / 4, box["y"] + box["height"] / 4)
    page.mouse.wheel(0, 300)
    page.wait_for_function("() => scrollY > 0")  # the wheel alone scrolls
    assert view() == start
    page.evaluate("scrollTo(0, 0)")
    page.keyboard.down("Control")
    page.mouse.wheel(0, -300)
    page.wait_for_function(
        "() => !document.getElementById('map').getAttribute('viewBox').endsWith('620')"
    )
    page.keyboard.up("Control")
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
    page.click("#closer")
    assert view()[2] < start[2]
    page.click("#farther")
    assert view() == pytest.approx(start)
    page.click("#closer")
    page.click("#reset")
    assert view() == start


@pytest.mark.parametrize("wanted", ["CPD-041", "cpd-041", "41", CHAINS[41]])
def test_search_finds_rows_names_and_texts_of_the_whole_collection(
    page: Any, molecules: Path, wanted: str
):
    _search(page, wanted)
    hits = page.locator("#found li")
    assert f"CPD-041 {CHAINS[41]}" in " ".join(hits.all_inner_texts())
    page.press("#search", "Enter")
    members = read_table(molecules / "members.csv")
    assert page.evaluate("chosen") in {row["path"] for row in members}
    _search(page, "nothing has this text")
    assert hits.count() == 0
    assert page.locator("#scale").inner_text() == "nothing found"
    assert _colors(page) == {
        page.evaluate("getComputedStyle(document.body).getPropertyValue('--off')")
    }


def test_search_finds_groups_by_their_names(page: Any, molecules: Path):
    page.evaluate("atlas.nodes[1].title = 'Pyridine, low logP'")
    group = page.evaluate("atlas.nodes[1].path")
    _search(page, "pyridine")
    first = page.locator("#found li").first
    assert first.inner_text().startswith(f"Pyridine, low logP #{group} ")
    inside = [
        m["row"]
        for m in read_table(molecules / "members.csv")
        if m["path"].startswith(f"{group}/") or m["path"] == group
    ]
    assert f"1 group and {len(inside)} graphs found" in page.locator("#scale").inner_text()
    assert [row["row"] for row in _saved(page, "#csv")] == inside
    first.locator("button").click()
    assert page.evaluate("chosen") == group


def test_the_selection_is_saved_as_csv(page: Any, molecules: Path):
    members = read_table(molecules / "members.csv")
    assert page.locator("#csv").inner_text() == "All as CSV"
    everyone = _saved(page, "#csv")
    assert [(r["row"], r["path"]) for r in everyone] == [(m["row"], m["path"]) for m in members]
    assert [r["text"] for r in everyone] == list(CHAINS)
    assert everyone[5]["id"] == "CPD-005"
    _search(page, "O")
    assert page.locator("#csv").inner_text() == "Found as CSV"
    found = _saved(page, "#csv")
    assert [int(r["row"]) for r in found] == [k for k, s in enumerate(CHAINS) if "O" in s]
    _search(page, "")
    page.evaluate("choose(atlas.nodes.find(n => n.members && n.path.split('/').length === 2).path)")
    group = page.evaluate("chosen")
    assert page.locator("#csv").inner_text() == "Group as CSV"
    inside = _saved(page, "#csv")
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
    for path, words in ((child, above["title"]), (above["path"], f"{above['title']} #")):
        page.evaluate("path => choose(path)", path)
        crumbs = page.locator("#detail p.crumbs").inner_text()
        assert words in crumbs
        assert crumbs.endswith((path, f"#{path}"))


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
        colors = _colors(page)
        page.emulate_media(color_scheme="light" if look == "dark" else "dark")
        for color in colors:  # dots follow the paper
            page.wait_for_selector(f"#map circle[fill='{color}']", state="detached")


def test_blocks_of_the_tree_fill_their_parent_and_keep_their_height(page: Any):
    sizes = [[30, 30, 1], [5], [50, 3, 3, 1], [400, 9, 8, 7, 6, 5, 4, 3, 2, 1], [1] * 30]
    for members in sizes:
        for room in (10, 14, 20, 28, 38, 90, 620):
            nodes = [{"members": n} for n in members]
            blocks = page.evaluate("([nodes, room]) => heights(nodes, room)", [nodes, room])
            assert sum(block["tall"] for block in blocks) == pytest.approx(room)
            assert min(block["tall"] for block in blocks) >= min(14, room) - 1e-9
            assert [n for block in blocks for n in block["nodes"]] == nodes


def test_whole_numbers_have_no_decimals(page: Any):
    told = page.evaluate("[15, 0, 2173, 2173.4, 15.25, -0.5].map(number)")
    assert told == ["15", "0", "2,173", "2,173", "15.3", "-0.50"]


def test_a_group_without_members_on_the_map_says_so(page: Any):
    page.evaluate("choose(atlas.nodes.find(n => n.members).path)")
    assert page.locator("#scale").inner_text() == ""
    page.evaluate("atlas.map.forEach(point => { point.path = 'x'; }); paint()")
    assert page.locator("#scale").inner_text() == "none of its members is on the map"


def test_drawings_and_the_selection_are_told_to_screen_readers(page: Any):
    page.evaluate("choose(atlas.nodes.find(n => n.members && n.typical.length).path)")
    drawings = page.locator("figure svg").all()
    assert {svg.get_attribute("role") for svg in drawings} == {"img"}
    assert all(svg.get_attribute("aria-label") for svg in drawings)
    assert page.evaluate("chosen") in page.locator("[role=status]#said").inner_text()
    assert page.locator("#detail[aria-live]").count() == 0


def test_fingers_scroll_pinch_and_tap(browser: Any, molecules: Path):
    phone = {"viewport": {"width": 390, "height": 844}, "has_touch": True, "is_mobile": True}
    with opened(browser, molecules / "atlas.html", **phone) as page:
        page.evaluate("document.getElementById('map').scrollIntoView({block: 'center'})")
        page.wait_for_timeout(200)
        box, keys = page.locator("#map").bounding_box(), page.context.new_cdp_session(page)
        x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2

        def touch(*steps: list[tuple[float, float]]) -> None:
            for k, places in enumerate(steps):
                points = [{"x": a, "y": b, "id": n} for n, (a, b) in enumerate(places)]
                what = {"type": "touchMove" if k else "touchStart", "touchPoints": points}
                keys.send("Input.dispatchTouchEvent", what)
            keys.send("Input.dispatchTouchEvent", {"type": "touchEnd", "touchPoints": []})
            page.wait_for_timeout(300)

        touch(*([(x - 10 - 5 * k, y), (x + 10 + 5 * k, y)] for k in range(8)))
        assert page.evaluate("view[2]") < 400
        page.click("#reset")
        page.evaluate("document.getElementById('map').scrollIntoView({block: 'center'})")
        page.wait_for_timeout(200)
        before = page.evaluate("scrollY")
        dot = page.locator("#map circle").first.bounding_box()
        page.touchscreen.tap(dot["x"] + dot["width"] + 4, dot["y"] + dot["height"] / 2)
        assert page.evaluate("picked") is not None
        assert page.locator("#detail h2").first.bounding_box()["y"] < 844
        page.evaluate(f"scrollTo(0, {before})")
        page.wait_for_timeout(200)
        touch(*([(x, y - 15 * k)] for k in range(10)))
        assert page.evaluate("scrollY") > before
        assert page.evaluate("view") == [0, 0, 620]


def test_graphs_of_any_kind_have_an_atlas(browser: Any, tmp_path: Path):
    write_prototypes("random", tmp_path / "tree", ring_store(tmp_path), fit=True)
    with opened(browser, tmp_path / "tree" / "atlas.html") as page:
        assert page.locator("#strangers figure circle").count() > 12
        assert "salt" not in page.locator("#novel").inner_text()
        page.locator("#map circle").first.click(force=True)
        assert page.locator("#detail .picked svg").count() == 1
        assert len(_saved(page, "#csv")) >= 1
