"""Who may ask the dashboard what: hosts, tokens, forms, and input that is refused."""

import re
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner

from rqretry.cli.main import cli
from rqretry.core.errors import ConfigError
from rqretry.dashboard import access
from rqretry.dashboard.pages import Pages
from tests.contract.admin.bench import Bench
from tests.edges.dashboard.conftest import browsing

PLACE: Any = {"group": "billing", "topic": "orders"}
TOKEN = "correct-horse-battery"


async def form(browser: Any, verb: str, query: str = "") -> dict[str, str]:
    """The hidden fields of a confirmation page."""
    text = (await browser.get(f"/confirm/{verb}/billing{query}")).text
    return dict(re.findall(r'type="hidden" name="(\w+)" value="([^"]*)"', text))


@pytest.mark.parametrize(
    "host",
    ["evil.example", "127.0.0.1.evil.example:8765", "", "[", "a@b", "127.0.0.1:7551, evil",
     "localhost:x", "localhost:80/", "localhost,evil", "[::1]evil", "localhost:999999"],
)  # fmt: skip
async def test_another_host_name_is_not_served(bench: Bench, host: str) -> None:
    async with browsing(bench.url) as browser:
        answer = await browser.get("/", headers={"Host": host, "X-Forwarded-Host": "localhost"})
    assert answer.status_code == 421


async def test_every_answer_forbids_scripts_of_others_frames_and_sniffing(bench: Bench) -> None:
    async with browsing(bench.url) as browser:
        answers = [await browser.get(path) for path in ("/", "/none", "/group/.", "/style.css")]
        answers.append(await browser.get("/", headers={"Host": "evil"}))
    for answer in answers:
        policy = answer.headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "script-src 'self';" in policy
        assert "unsafe" not in policy
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["cache-control"] == "no-store"


async def test_with_a_token_nothing_is_shown_without_it(bench: Bench) -> None:
    async with browsing(bench.url, token=TOKEN) as browser:
        assert (await browser.get("/")).status_code == 401
        assert (await browser.get("/style.css", auth=("me", "wrong"))).status_code == 401
        assert (await browser.get("/", headers={"Authorization": "Basic %%"})).status_code == 401
        assert (await browser.get("/", auth=("me", TOKEN))).status_code == 200


@pytest.mark.parametrize("host", ["127.0.0.1:8765", "LOCALHOST", "[::1]:80"])
async def test_this_machine_is_served_by_any_of_its_names(bench: Bench, host: str) -> None:
    async with browsing(bench.url) as browser:
        assert (await browser.get("/", headers={"Host": host})).status_code == 200


async def test_who_sends_ten_wrong_tokens_waits_a_minute(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [100.0]
    monkeypatch.setattr(access, "time", SimpleNamespace(monotonic=lambda: now[0]))
    async with browsing(bench.url, token=TOKEN) as browser:
        for _ in range(20):
            assert (await browser.get("/")).status_code == 401, "no token is no wrong one"
        for number in range(10):
            assert (await browser.get("/", auth=("me", f"{TOKEN}{number}"))).status_code == 401
        refused = await browser.get("/", auth=("me", TOKEN))
        assert (refused.status_code, refused.headers["retry-after"]) == (429, "60")
        now[0] += 60
        assert (await browser.get("/", auth=("me", TOKEN))).status_code == 200


def test_wrong_tokens_of_many_addresses_are_counted_in_bounded_memory() -> None:
    wrong = access.WrongTokens()
    for number in range(3000):
        wrong.add(f"10.0.{number}")
    for _ in range(access.MOST_WRONG):
        wrong.add("::1")
    assert wrong.too_many("::1")
    assert len(wrong._counts) <= 1024


@pytest.mark.parametrize(
    "path",
    [
        *("/group/../x", "/group/%2e%2e", "/group/a%00b", "/group/a%0d%0ab", "/group/%252e"),
        *("/group/" + "a" * 10_000, "/message/%3Cb%3E", "/message?id=", "/message?id=a&id=b"),
        *("/dead/billing?page=-1", "/dead/billing?page=0", "/dead/billing?page=99999"),
        *("/dead/billing?size=1000000000", "/dead/billing?sort=__class__"),
        *("/dead/billing?page=1&page=2", "/dead/billing?fingerprint=%27", "/?x=1"),
    ],
)
async def test_what_cannot_be_asked_is_refused_before_redis_is(bench: Bench, path: str) -> None:
    async with browsing(bench.url) as browser:
        answer = await browser.send(browser.build_request("GET", "http://127.0.0.1" + path))
    assert answer.status_code == (404 if path == "/group/../x" else 400), answer.text
    assert "location" not in answer.headers


@pytest.mark.parametrize("method", ["HEAD", "OPTIONS", "TRACE", "PUT", "DELETE"])
async def test_other_methods_are_refused(bench: Bench, method: str) -> None:
    async with browsing(bench.url) as browser:
        assert (await browser.request(method, "/")).status_code == 405


async def test_what_is_not_there_is_404(bench: Bench) -> None:
    async with browsing(bench.url) as browser:
        for path in ("/group/none", "/dead/none", "/message/none", "/none", "/group"):
            assert (await browser.get(path)).status_code == 404, path


async def test_without_operator_rights_every_action_is_refused(bench: Bench) -> None:
    bench.dead_letter(1, **PLACE)
    async with browsing(bench.url) as browser:
        for verb in ("pause", "resume", "redrive", "purge"):
            assert (await browser.get(f"/confirm/{verb}/billing")).status_code == 403
            data = {"confirm": "yes", "token": "x"}
            assert (await browser.post(f"/act/{verb}/billing", data=data)).status_code == 403
        assert "/confirm/" not in (await browser.get("/dead/billing")).text
    assert bench.admin.stats().dead == 1


async def test_an_operator_pauses_and_resumes_and_it_is_on_record(bench: Bench) -> None:
    async with browsing(bench.url, operator=True) as browser:
        for verb, paused in (("pause", True), ("resume", False)):
            answer = await browser.post(f"/act/{verb}/billing", data=await form(browser, verb))
            assert (answer.status_code, answer.headers["location"]) == (303, "/group/billing")
            assert bench.admin.group("billing").paused is paused
        page = (await browser.get("/group/billing")).text
    assert [entry.verb for entry in bench.admin.audit()][:2] == ["resume", "pause"]
    assert ">pause</td>" in page


async def test_an_operator_sends_one_cluster_back_and_purges_another(bench: Bench) -> None:
    bench.dead_letter(1, 2, reason="boom", **PLACE)
    bench.dead_letter(3, reason="other", **PLACE)
    boom, _, other = (record.fingerprint for record in bench.admin.dead_letters("billing"))
    async with browsing(bench.url, operator=True) as browser:
        data = await form(browser, "redrive", f"?fingerprint={boom}")
        assert (await browser.post("/act/redrive/billing", data=data)).status_code == 303
        assert (bench.admin.stats().ready, bench.admin.stats().dead) == (2, 1)
        data = await form(browser, "purge", f"?fingerprint={other}")
        assert (await browser.post("/act/purge/billing", data=data)).status_code == 403
        assert bench.admin.stats().dead == 1
        data["confirm"] = "billing"
        assert (await browser.post("/act/purge/billing", data=data)).status_code == 303
    assert bench.admin.stats().dead == 0
    assert [entry.verb for entry in bench.admin.audit()][:2] == ["purge", "redrive"]


@pytest.mark.parametrize(
    "headers",
    [{"Origin": "http://evil.example"}, {"Origin": "null"}, {"Sec-Fetch-Site": "cross-site"}],
)
async def test_a_form_of_another_site_is_refused(bench: Bench, headers: dict[str, str]) -> None:
    async with browsing(bench.url, operator=True) as browser:
        data = await form(browser, "pause")
        answer = await browser.post("/act/pause/billing", data=data, headers=headers)
        assert answer.status_code == 403
        stolen = await form(browser, "resume")  # the token of another action
        assert (await browser.post("/act/pause/billing", data=stolen)).status_code == 403
    assert not bench.admin.group("billing").paused


@pytest.mark.parametrize(
    "content", [b"x" * 5000, b"\xff\xfe", b"a=1", b"id=1&id=2", b"&".join([b"id=1"] * 20)]
)
async def test_a_form_that_is_none_is_refused(bench: Bench, content: bytes) -> None:
    async with browsing(bench.url, operator=True) as browser:
        assert (await browser.post("/act/pause/billing", content=content)).status_code == 400


async def test_a_bug_is_an_error_number_and_nothing_else(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def broken(_pages: Pages, _request: object) -> None:
        raise RuntimeError("the secret inside")

    monkeypatch.setattr(Pages, "overview", broken)
    async with browsing(bench.url) as browser:
        answer = await browser.get("/")
    number = re.search(r"error ([0-9a-f]{16})", answer.text)
    assert answer.status_code == 500
    assert "secret" not in answer.text
    assert number is not None
    assert number[1] in caplog.text


@pytest.mark.parametrize(
    ("options", "shown"),
    [
        (["--host", "0.0.0.0"], "--token-file"),
        (["--host", "0.0.0.0", "--token-file", "TOKEN"], "--behind-proxy"),
        (["--host", "example.org", "--behind-proxy"], "--token-file"),
        (["--token-file", "SHORT"], "at least 16"),
    ],
)
def test_a_host_that_others_can_reach_needs_a_token_and_tls(
    options: list[str], shown: str, tmp_path: Any
) -> None:
    for name, text in (("TOKEN", TOKEN), ("SHORT", "abc")):
        (tmp_path / name).write_text(text)
    here = [str(tmp_path / word) if word in ("TOKEN", "SHORT") else word for word in options]
    answer = CliRunner().invoke(cli, ["dashboard", *here], standalone_mode=False)
    assert isinstance(answer.exception, ConfigError)
    assert shown in str(answer.exception)
