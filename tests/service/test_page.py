"""The page in a real browser: what people do with it, by mouse, by keyboard, on a phone.

With LEHD_SCREENSHOTS=folder the pictures in the documentation are taken again.
"""

from __future__ import annotations

import io
import json
import os
import re
from pathlib import Path

import pytest
from PIL import Image

from tests.cli.command import BAKERY, lehd_command
from tests.service.browser import chromium, drop_file, launch
from tests.service.conftest import wait_until
from tests.service.requests import table, vroom

if chromium() is None:
    pytest.skip("Chromium is not installed: the page is not tested", allow_module_level=True)

from playwright.sync_api import expect, sync_playwright

expect.set_options(timeout=60_000)


@pytest.fixture(scope="module")
def context(tmp_path_factory):
    with sync_playwright() as playwright:
        context = launch(
            playwright,
            tmp_path_factory.mktemp("profile"),
            viewport={"width": 1280, "height": 800},
            color_scheme="light",
        )
        yield context
        context.close()


@pytest.fixture
def page(context, service):
    """A fresh page; it may neither complain on the console nor ask anybody else for anything."""
    page = context.new_page()
    wrong: list[str] = []
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.on(
        "console", lambda line: wrong.append(line.text) if line.type == "error" and "422" not in line.text else None
    )
    page.on(
        "request",
        lambda request: None if request.url.startswith((service.url, "blob:", "data:")) else wrong.append(request.url),
    )
    page.goto(service.url)
    page.evaluate("localStorage.clear()")
    page.reload()
    page.set_default_timeout(20_000)
    yield page
    page.close()
    assert wrong == []


def picture(page, name: str) -> None:
    folder = os.environ.get("LEHD_SCREENSHOTS")
    if folder:
        page.mouse.move(1270, 60)
        page.wait_for_timeout(1300)  # until new segments no longer glow
        seen = Image.open(io.BytesIO(page.screenshot()))
        seen.convert("RGB").quantize(128, dither=Image.Dither.NONE).save(Path(folder) / name, optimize=True)


def number(page, selector: str) -> float:
    return float(page.locator(selector).inner_text().replace(",", ""))


def test_an_example_from_loading_to_the_checked_file(page, tmp_path):
    page.get_by_role("button", name="Bakery routes").click()
    expect(page.locator("#caption")).to_contain_text("80 customers")
    page.fill("#seconds", "60")
    page.click("#solve")
    wait_until(lambda: page.locator("#steps").is_visible() and number(page, "#steps") >= 1)
    picture(page, "page.png")
    page.click("#stop")
    expect(page.locator("#status")).to_contain_text("Stopped")
    with page.expect_download() as download:
        page.get_by_role("button", name=".sol").click()
    download.value.save_as(tmp_path / "bakery.sol")
    checked = lehd_command("check", BAKERY, tmp_path / "bakery.sol")
    assert checked.exit_code == 0
    assert f"cost {int(number(page, '#cost'))}," in checked.output
    rows = page.locator("#routes li")
    assert rows.count() >= 9
    rows.nth(1).hover()
    assert page.evaluate("lehd.view.scene.lit") == 1
    for form in ("JSON", "PNG"):
        with page.expect_download() as download:
            page.get_by_role("button", name=form, exact=True).click()
        download.value.save_as(tmp_path / f"bakery.{form.lower()}")
    assert (tmp_path / "bakery.png").read_bytes().startswith(b"\x89PNG")
    assert lehd_command("check", BAKERY, tmp_path / "bakery.json").exit_code == 0


def test_a_bad_file_says_what_is_wrong(page):
    drop_file(
        page,
        "bad.tsp",
        "NAME : bad\nTYPE : TSP\nDIMENSION : 2\nEDGE_WEIGHT_TYPE : EUC_2D\nNODE_COORD_SECTION\n1 0 0\n2 nan 1\n",
    )
    message = "bad.tsp, line 7: expected a number (at most 1e+15) in NODE_COORD_SECTION, found 'nan'"
    expect(page.get_by_role("alert")).to_contain_text(message)
    page.get_by_label("Close the message").click()
    expect(page.locator("#alert")).to_be_hidden()


def test_names_are_never_html(page):
    evil = "<img src=x onerror=document.title='hit'>"
    drop_file(page, f"{evil}.csv", f"name,x,y\n{evil},0,0\nb,0,9\nc,9,0\n")
    expect(page.locator("#caption")).to_contain_text("onerror")
    page.fill("#seconds", "1")
    page.click("#solve")
    expect(page.locator("#status")).to_contain_text("Done")
    assert page.locator("#stage img").count() == 0
    assert page.title() != "hit"


def test_drawing_by_mouse(page):
    box = page.locator("#map").bounding_box()
    for x, y in ((200, 200), (500, 220), (480, 500), (230, 480)):
        page.mouse.click(box["x"] + x, box["y"] + y)
    expect(page.locator("#caption")).to_contain_text("4 stops")
    page.mouse.move(box["x"] + 250, box["y"] + 300)
    page.mouse.down()
    page.mouse.move(box["x"] + 450, box["y"] + 300, steps=20)
    page.mouse.up()
    wait_until(lambda: page.evaluate("lehd.view.scene.problem.size") > 8)
    page.get_by_role("button", name="Depot").click()
    page.mouse.click(box["x"] + 200, box["y"] + 200)
    expect(page.locator("#caption")).to_contain_text("customers")
    page.get_by_role("button", name="Erase").click()
    before = page.evaluate("lehd.view.scene.problem.size")
    page.mouse.click(box["x"] + 480, box["y"] + 500)
    assert page.evaluate("lehd.view.scene.problem.size") == before - 1
    page.fill("#capacity", "20")
    page.fill("#seconds", "1")
    page.click("#solve")
    expect(page.locator("#status")).to_contain_text("Done")
    expect(page.locator("#routes li").first).to_contain_text("/ 20")
    page.get_by_role("button", name="Add").click()
    page.mouse.click(box["x"] + 600, box["y"] + 400)  # what was found no longer holds
    expect(page.locator("#result")).to_be_hidden()


def test_everything_by_keyboard(page):
    page.locator("#map").focus()
    page.keyboard.press("a")
    for key in ("Enter", "Shift+ArrowRight", "Shift+ArrowRight", "Enter", "Shift+ArrowDown", "Shift+ArrowDown", " "):
        page.keyboard.press("Space" if key == " " else key)
    expect(page.locator("#caption")).to_contain_text("3 stops")
    page.fill("#seconds", "1")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.id") == "solve"
    page.keyboard.press("Enter")
    expect(page.locator("#status")).to_contain_text("Done")
    expect(page.locator("#live")).to_contain_text("done")


def test_every_control_has_a_name(page):
    page.get_by_role("button", name="Bakery routes").click()
    page.fill("#seconds", "1")
    page.click("#solve")
    expect(page.locator("#status")).to_contain_text("Done")
    page.evaluate("document.getElementById('problem').open = true")
    nameless = page.evaluate(
        """() => [...document.querySelectorAll("button, input, select, a, canvas, svg[role=img]")]
            .filter((each) => !(each.getAttribute("aria-label") || each.textContent.trim() || each.labels?.length))
            .map((each) => each.outerHTML)"""
    )
    assert nameless == []


def test_pause_and_continue(page):
    page.get_by_role("button", name="Harbour tour").click()
    page.fill("#seconds", "4")
    page.click("#solve")
    page.locator("#result").wait_for()
    page.click("#pause")
    expect(page.locator("#status")).to_contain_text("Paused")
    cost = number(page, "#cost")
    points = page.evaluate("lehd.history.length")
    page.click("#resume")
    page.locator("#pause").wait_for()
    expect(page.locator("#status")).to_contain_text("Improving")
    page.wait_for_timeout(300)
    seconds = page.evaluate("lehd.history.map((point) => point.seconds)")
    assert len(seconds) >= points
    assert seconds == sorted(set(seconds))  # the curve goes on; it does not begin again
    expect(page.locator("#status")).to_contain_text("Done")
    assert number(page, "#cost") <= cost
    page.reload()  # the job is in the address
    expect(page.locator("#status")).to_contain_text("Done")
    expect(page.locator("#caption")).to_contain_text("harbour")
    expect(page.locator("#facts")).to_contain_text("EUC_2D")
    assert number(page, "#cost") <= cost
    page.fill("#seconds", "1")
    page.click("#solve")  # the file itself again, its own distances included
    page.locator("#pause").wait_for()
    expect(page.locator("#status")).to_contain_text("Done")
    assert number(page, "#cost").is_integer()


def test_what_is_changed_while_a_job_is_sent_stays_changed(page):
    page.get_by_role("button", name="Harbour tour").click()
    expect(page.locator("#caption")).to_contain_text("120 stops")
    sent, ended = [], []
    page.on("response", lambda response: "/jobs?" in response.url and sent.append(response))
    page.on("requestfinished", lambda request: request.method == "DELETE" and ended.append(request))
    page.evaluate("document.getElementById('solve').click(); document.getElementById('clear').click()")
    wait_until(lambda: page.wait_for_timeout(50) or (sent and ended))
    assert ended[0].url.endswith(sent[0].json()["id"])  # the job that nobody wants any more is stopped
    assert page.evaluate("[lehd.problem.size, lehd.view.scene.routes.length, lehd.search.id]") == [0, 0, None]
    expect(page.locator("#result")).to_be_hidden()


def test_compare_with_a_reference(page):
    drop_file(page, "square.csv", "x,y\n0,0\n10,10\n10,0\n0,10\n")
    expect(page.locator("#caption")).to_contain_text("4 stops")
    page.fill("#seconds", "1")
    page.click("#solve")
    expect(page.locator("#status")).to_contain_text("Done")
    assert number(page, "#cost") == 40
    drop_file(page, "crossed.tour", "TYPE : TOUR\nTOUR_SECTION\n1\n2\n3\n4\n-1\n")
    expect(page.locator("#gap")).to_have_text("\u221217.2 %")  # a tour along both diagonals is 20 + 20 √2 long
    expect(page.locator("#show-reference")).to_be_visible()
    drop_file(page, "short.tour", "TYPE : TOUR\nTOUR_SECTION\n1\n2\n3\n-1\n")
    expect(page.get_by_role("alert")).to_contain_text("not visited")
    page.fill("#known", "32")
    expect(page.locator("#gap")).to_have_text("+25.0 %")


def test_vroom_json(page):
    drop_file(page, "shops.json", json.dumps(vroom(jobs=6, vehicles=3)))
    expect(page.locator("#caption")).to_contain_text("6 customers")
    page.fill("#seconds", "1")
    page.click("#solve")
    expect(page.locator("#status")).to_contain_text("Done")
    expect(page.locator("#routes li").first).to_contain_text("/ 10")
    drop_file(page, "late.json", json.dumps(vroom(jobs=6) | {"shipments": [{}]}))
    expect(page.get_by_role("alert")).to_contain_text("shipments: not solved here (pickups with deliveries)")
    expect(page.locator("#caption")).to_contain_text("6 customers")  # what was there stays


def test_a_map_of_the_globe(page, tmp_path):
    page.get_by_role("button", name="European capitals").click()
    expect(page.locator("#facts")).to_contain_text("metres on the globe")
    page.fill("#seconds", "6" if os.environ.get("LEHD_SCREENSHOTS") else "2")
    page.click("#solve")
    expect(page.locator("#status")).to_contain_text("Done")
    expect(page.locator("#unit")).to_have_text("km")
    picture(page, "globe.png")
    with page.expect_download() as download:
        page.get_by_role("button", name="GeoJSON").click()
    download.value.save_as(tmp_path / "capitals.geojson")
    assert "LineString" in (tmp_path / "capitals.geojson").read_text()


def test_light_and_dark(page):
    ground = page.evaluate("getComputedStyle(document.body).backgroundColor")
    page.get_by_label("Switch between light and dark").click()
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") != ground
    page.evaluate("document.getElementById('problem').open = true")
    page.check("input[value=CVRP]", force=True)
    page.fill("#count", "60")
    page.get_by_role("button", name="Clustered").click()
    page.fill("#seconds", "2")
    page.click("#solve")
    expect(page.locator("#status")).to_contain_text("Done")
    picture(page, "dark.png")


def test_a_phone(page):
    page.set_viewport_size({"width": 390, "height": 844})
    page.get_by_label("Switch between light and dark").click()
    page.get_by_role("button", name="Bakery routes").click()
    page.fill("#seconds", "2")
    page.click("#solve")
    expect(page.locator("#status")).to_contain_text("Done")
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    for button in page.locator("button:visible").all():
        box = button.bounding_box()
        assert box["x"] >= 0
        assert box["x"] + box["width"] <= 391
    picture(page, "phone.png")


def test_the_api_page_works_alone(page, service):
    page.goto(f"{service.url}/docs")
    page.get_by_text("/jobs/{id}/events").click()
    expect(page.get_by_text("Server-sent events: every improvement")).to_be_visible()
    assert page.locator("#routes details").count() >= 13


def test_map_tiles_where_they_are_configured(context, idle):
    client = idle(tiles="https://tiles.example/{z}/{x}/{y}.png", tiles_credit="the tile makers")
    page, seen = context.new_page(), []
    tile = io.BytesIO()
    Image.new("RGB", (256, 256), (200, 220, 255)).save(tile, "PNG")

    def serve(route):
        seen.append(route.request.url)
        route.fulfill(body=tile.getvalue(), content_type="image/png", headers={"access-control-allow-origin": "*"})

    page.route("https://tiles.example/**", serve)
    page.goto(str(client.base_url))
    page.get_by_role("button", name="European capitals").click()
    expect(page.locator("#credit")).to_have_text("the tile makers")
    wait_until(lambda: page.wait_for_timeout(50) or len(seen) >= 4)  # its timeout lets the tiles be served
    assert all(re.fullmatch(r"https://tiles\.example/\d+/\d+/\d+\.png", url) for url in seen)
    page.close()


def test_a_service_with_a_key_asks_for_it(context, idle):
    client = idle(keys=("a-long-secret",))
    page = context.new_page()
    page.goto(str(client.base_url))
    page.get_by_role("button", name="Harbour tour").click()
    page.get_by_label("API key").fill("a-long-secret")
    page.get_by_role("button", name="Use it").click()
    expect(page.locator("#caption")).to_contain_text("120 stops")
    page.close()


@pytest.mark.soak
@pytest.mark.parametrize("solved", [False, True])
def test_frames_per_second_with_ten_thousand_stops(page, solved):
    """A benchmark: it prints, and asserts nothing about speed."""
    drop_file(page, "large.csv", table(10_000))
    expect(page.locator("#caption")).to_contain_text("10,000 stops")
    if solved:
        page.fill("#seconds", "20")
        page.click("#solve")
        page.locator("#result").wait_for(timeout=60_000)
        page.click("#stop")
        expect(page.locator("#status")).to_contain_text("Stopped")
    measured = page.evaluate(
        """() => new Promise((done) => {
            const { view } = lehd;
            const began = performance.now();
            const times = [];
            let last = began;
            const step = (now) => {
                times.push(now - last);
                last = now;
                view.pan(6 * Math.sin(times.length / 40), 3 * Math.cos(times.length / 40));
                if (now - began < 5000) requestAnimationFrame(step);
                else done(times.slice(1));
            };
            requestAnimationFrame(step);
        })"""
    )
    measured.sort()
    mean, slow = 1000 * len(measured) / sum(measured), measured[int(0.95 * len(measured))]
    print(f"\n10,000 stops, solved {solved}: {mean:.0f} frames/s, slowest twentieth {slow:.0f} ms")
    assert len(measured) > 10
