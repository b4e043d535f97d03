"""The pages of a hub in a real browser: the main tasks, accessibility, hostile names."""

from __future__ import annotations

from typing import Any

import pytest

from tests.ui.hub.conftest import HUB_PAGES, Team, repository_pages

browser_tests = pytest.importorskip("tests.ui.test_browser")
browser, open_page = browser_tests.browser, browser_tests.open_page
PARTS = ("/rows", "/statistics", "/data/", "/complete")


def paths(base: str, model: str, file: str) -> list[str]:
    found = [*HUB_PAGES, *repository_pages(base, model, file), "/nothing"]
    found += [f"{base}/network/{model}@1"] if model == "lenet" else []
    return [path for path in found if not any(part in path for part in PARTS)]


def entered(watched: Any, team: Team, session: str) -> Any:
    cookie = {"name": "dlv_session", "value": session, "url": team.running.root}
    watched.context.add_cookies([cookie])
    return watched


OWN = ["/tokens", "/acme/vision/-/settings", "/acme/-/settings", "/login/device", "/ada"]


@pytest.mark.parametrize("look", ["light", pytest.param("dark", marks=pytest.mark.slow)])
def test_no_page_breaks_the_rules_of_accessibility(team: Team, open_page: Any, look: str) -> None:
    watched, rules = open_page(team.running, color_scheme=look), browser_tests.RULES[look]
    for path in paths("/acme/vision", "lenet", "train.py"):
        watched.go(path)
        browser_tests.check(watched.page, path, rules)
    entered(watched, team, team.ada)
    for path in OWN:
        watched.go(path)
        browser_tests.check(watched.page, path, rules)


def test_narrow_screens_do_not_scroll_sideways(team: Team, open_page: Any) -> None:
    watched = open_page(team.running, viewport={"width": 360, "height": 800})
    anonymous = [*paths("/acme/vision", "lenet", "train.py"), "/acme/evil", "/search?q=evil"]
    for path in anonymous:
        browser_tests.check_narrow(watched.go(path), path)
    entered(watched, team, team.ada)
    for path in OWN:
        browser_tests.check_narrow(watched.go(path), path)


def test_hostile_names_do_nothing(team: Team, open_page: Any) -> None:
    watched = entered(open_page(team.running), team, team.ada)
    for path in [
        *paths("/acme/evil", "evil", "CARD.md"),
        "/search?q=evil",
        "/acme/evil/-/settings",
    ]:
        watched.go(path)
    assert "onerror" in watched.go("/search?q=evil").inner_text("main")


def test_a_model_is_found_compared_and_queried(team: Team, open_page: Any) -> None:
    page = open_page(team.running).go("/")
    page.keyboard.press("/")
    page.keyboard.type("lenet")
    page.keyboard.press("Enter")
    page.wait_for_url("**/search?q=lenet*")
    page.get_by_role("link", name="acme/vision").first.click()
    page.wait_for_url("**/acme/vision")
    page.get_by_role("link", name="Versions", exact=True).click()
    page.wait_for_url("**/acme/vision/versions")
    page.get_by_label("choose lenet@1").check()
    page.get_by_label("choose lenet@2").check()
    page.get_by_role("button", name="Compare 2 chosen versions").click()
    page.wait_for_url("**/acme/vision/compare?v=lenet%401&v=lenet%402")
    assert page.locator("table.heat").count() >= 1
    page.locator(".uplot").first.wait_for()
    page.get_by_role("link", name="Query", exact=True).click()
    page.locator("#search").fill('select m where m["lo')
    page.locator("#search").press("End")
    page.keyboard.type("s")
    page.get_by_role("option").first.wait_for()
    page.keyboard.press("Escape")
    page.locator("#search").fill('select m, m.number where m["loss"] < 100')
    page.locator("#search").press("Control+Enter")
    page.wait_for_url("**/acme/vision/query?q=*")
    page.get_by_role("link", name="lenet@1", exact=True).click()
    page.wait_for_url("**/acme/vision/v/lenet@1")
    page.get_by_role("button", name="Show statistics").click()
    page.get_by_text("std", exact=True).first.wait_for()


def test_columns_and_filters_stay_in_their_repository(team: Team, open_page: Any) -> None:
    page = open_page(team.running).go("/acme/vision/versions")
    page.locator("#search").fill("loss < 100")
    page.keyboard.press("Enter")
    page.wait_for_url("**/acme/vision/versions?where=*")
    page.get_by_text("Columns", exact=True).click()
    page.locator('input[name="columns"]').last.fill("loss.min")
    page.get_by_role("button", name="Show").click()
    page.wait_for_url("**/acme/vision/versions?*columns=loss.min*")
    page.get_by_role("link", name="Overview").click()
    page.get_by_role("link", name="Versions", exact=True).click()
    page.wait_for_url("**/acme/vision/versions?columns=loss.min")


def test_logging_in_making_a_token_and_logging_out(team: Team, open_page: Any) -> None:
    page = open_page(team.running).go("/tokens")
    page.wait_for_url("**/login?next=*")
    page.get_by_label("Token").fill(team.keeper.token("eve"))
    page.get_by_role("button", name="Log in").click()
    page.wait_for_url("**/tokens")
    page.get_by_label("Name").fill("mine")
    page.get_by_label("Days").fill("5")
    page.get_by_role("button", name="Create token").click()
    page.get_by_text("is shown once").wait_for()
    page.get_by_role("button", name="Revoke mine").click()
    page.get_by_role("button", name="Revoke mine").wait_for(state="detached")
    page.get_by_role("button", name="Log out").click()
    page.get_by_role("link", name="Log in").wait_for()


def test_settings_by_mouse(team: Team, open_page: Any) -> None:
    watched = entered(open_page(team.running), team, team.ada)
    page = watched.go("/acme/vision/-/settings")
    page.get_by_label("Model").fill("lenet")
    page.get_by_label("Alias", exact=True).fill("champion")
    page.get_by_label("Version number").fill("1")
    page.get_by_role("button", name="Set alias").click()
    page.get_by_role("button", name="Remove champion of lenet").click()
    page.get_by_role("button", name="Remove champion of lenet").wait_for(state="detached")


def test_pages_are_whole_without_scripts(team: Team, open_page: Any) -> None:
    watched = open_page(None, java_script_enabled=False)
    watched.running = team.running
    page = watched.go("/")
    page.get_by_role("link", name="lenet@3", exact=True).first.click()
    assert page.locator("svg.curves").count() >= 1
    assert page.locator(".network svg").count() == 1


def test_no_message_is_shown_by_a_page_that_was_only_read(team: Team, open_page: Any) -> None:
    page = open_page(team.running).go("/acme/vision")
    assert page.get_by_role("alert").count() == 0
