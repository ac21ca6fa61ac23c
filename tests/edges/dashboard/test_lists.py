"""Filters, order and pages of the lists; the search; and actions on a selection."""

import html
import re
from typing import Any

import pytest

from tests.contract.admin.bench import Bench
from tests.edges.dashboard.conftest import CANARY, browsing

PLACE: Any = {"group": "billing", "topic": "orders"}


def groups_in(page: str) -> list[str]:
    """The groups in the table of the first page, in its order."""
    return re.findall(r'href="/group/([^"]+)"', page.partition("<tbody>")[2])


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("", ["billing", "mail", "audit"]),
        ("?sort=group", ["audit", "billing", "mail"]),
        ("?sort=-group", ["mail", "billing", "audit"]),
        ("?sort=ready", ["mail", "billing", "audit"]),
        ("?sort=-ready", ["audit", "billing", "mail"]),
        ("?q=IL", ["billing", "mail"]),
        ("?q=receipts", ["mail"]),
        ("?show=problems", ["billing", "mail"]),
        ("?show=GroupWithoutWorker", ["billing"]),
        ("?show=paused&sort=group", ["mail"]),
        ("?show=dead", []),
        ("?page=2", []),
        ("?q=%3Cscript%3E", []),
    ],
)
async def test_groups_are_filtered_sorted_and_cut_into_pages(
    bench: Bench, query: str, expected: list[str]
) -> None:
    bench.group("mail", "receipts")
    bench.group("audit", "events")
    bench.publish(1, topic="orders")
    bench.publish(1, 2, topic="receipts")
    bench.appear("w", group="mail", topic="receipts")
    bench.admin.pause("mail")
    async with browsing(bench.url) as browser:
        page = (await browser.get(f"/{query}")).text
    assert groups_in(page) == expected


@pytest.mark.parametrize(
    "query", ["sort=dea", "show=everything", "q=" + "a" * 129, "q=%00", "sort=--dead", "x=1"]
)
async def test_what_is_no_filter_is_refused(bench: Bench, query: str) -> None:
    async with browsing(bench.url) as browser:
        assert (await browser.get(f"/?{query}")).status_code == 400


async def test_fifty_groups_are_on_a_page(bench: Bench) -> None:
    for number in range(60):
        bench.group(f"g{number:02}", "many")
    async with browsing(bench.url) as browser:
        first = (await browser.get("/?sort=group&q=many")).text
        link = html.unescape(re.findall(r'href="([^"]+)">next<', first)[0])
        second = (await browser.get(link)).text
    assert groups_in(first) == [f"g{number:02}" for number in range(50)]
    assert groups_in(second) == [f"g{number:02}" for number in range(50, 60)]


async def test_the_search_finds_ids_keys_tags_groups_and_topics(bench: Bench) -> None:
    id_, other = bench.publish(1, 2, topic="orders", keys="order-7", tag="gold")
    async with browsing(bench.url) as browser:
        answer = await browser.get("/search", params={"q": f" {id_} "})
        assert (answer.status_code, answer.headers["location"]) == (303, f"/message/{id_}")
        by_key = (await browser.get("/search?q=order-7")).text
        assert f"/message/{id_}" in by_key
        assert f"/message/{other}" in by_key
        by_tag = (await browser.get("/search?q=gold")).text
        assert "/messages/billing?tag=gold" in by_tag
        assert f"/message/{other}" in by_tag
        assert "/group/billing" in (await browser.get("/search?q=bill")).text
        assert "/topics?q=orders" in (await browser.get("/search?q=ORDER")).text
        assert "No message has" in (await browser.get("/search?q=%3Cb%3E")).text


async def test_a_selection_of_dead_letters_is_sent_back_and_is_on_record(bench: Bench) -> None:
    first, second, third = bench.dead_letter(1, 2, 3, **PLACE)
    path = f"/confirm/redrive/billing?chosen=yes&id={first}&id={third}"
    async with browsing(bench.url, operator=True) as browser:
        assert (await browser.get("/confirm/redrive/billing?chosen=yes")).status_code == 400
        page = (await browser.get(path)).text
        assert "2 dead letters" in page
        form: dict[str, Any] = {}
        for name, value in re.findall(r'type="hidden" name="(\w+)" value="([^"]*)"', page):
            form.setdefault(name, []).append(value)
        assert form["id"] == [first, third]
        assert (await browser.post("/act/redrive/billing", data=form)).status_code == 303
    (left,) = bench.admin.dead_letters("billing")
    assert left.id == second
    (entry, *_) = bench.admin.audit()
    assert (entry.verb, entry.arguments["ids"]) == ("redrive", sorted([first, third]))


async def test_what_waits_is_listed_with_why_and_filtered(bench: Bench) -> None:
    first, second, third = bench.publish(1, 2, 3, topic="orders", tag="gold", keys="k7")
    bench.fail(bench.lease(2, **PLACE), CANARY, level=4, **PLACE)
    async with browsing(bench.url) as browser:
        listed = (await browser.get("/messages/billing")).text
        waiting = (await browser.get("/messages/billing?state=waiting_retry&tag=gold")).text
        none = (await browser.get("/messages/billing?key=other")).text
        group = (await browser.get("/group/billing")).text
        assert (await browser.get("/messages/billing?state=x")).status_code == 400
        assert (await browser.get("/messages/billing?after=x")).status_code == 400
        assert (await browser.get("/messages/none")).status_code == 404
    assert all(f"/message/{id_}" in listed for id_ in (first, second, third))
    assert f"/message/{third}" not in waiting
    assert CANARY in html.unescape(waiting)
    assert "There are no such messages" in none
    assert "of 2 that wait:" in group
    assert CANARY not in listed + waiting + group


@pytest.mark.parametrize(
    ("verb", "which", "confirm", "left", "recorded"),
    [
        ("promote", (0, 1), "yes", (1, 2, 0, 0, 0), ["promote"]),
        ("dead_letter", (0, 2), "yes", (0, 0, 0, 1, 2), ["dead_letter"]),
        ("cancel", (0, 2), "billing", (0, 0, 0, 1, 0), ["purge", "purge"]),
    ],
)
async def test_chosen_messages_are_retried_now_or_cancelled(
    bench: Bench, verb: str, which: Any, confirm: str, left: Any, recorded: list[str]
) -> None:
    ids = bench.publish(1, 2, 3, topic="orders")
    bench.fail(bench.lease(2, **PLACE), level=4, **PLACE)
    chosen = [ids[number] for number in which]
    path = f"/confirm/{verb}/billing?chosen=yes&" + "&".join(f"id={id_}" for id_ in chosen)
    async with browsing(bench.url) as reader:
        assert (await reader.get(path)).status_code == 403
    async with browsing(bench.url, operator=True) as browser:
        page = (await browser.get(path)).text
        assert "2 messages" in page
        (token,) = re.findall(r'name="token" value="(\w+)"', page)
        form = {"token": token, "confirm": confirm, "id": chosen}
        answer = await browser.post(f"/act/{verb}/billing", data=form | {"confirm": "no"})
        assert answer.status_code == 403
        answer = await browser.post(f"/act/{verb}/billing", data=form)
        assert (answer.status_code, answer.headers["location"]) == (303, "/messages/billing")
    assert bench.numbers("billing") == left
    assert bench.verbs() == recorded
