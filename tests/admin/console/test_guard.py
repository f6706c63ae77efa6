"""Who may ask the console: the right name, the right token, and for a change a form of the console itself."""

from __future__ import annotations

import getpass
import stat
from pathlib import Path

import pytest

from eruca.admin.console.changes import Changes
from eruca.admin.console.server import listener
from eruca.admin.errors import BadValue
from tests.admin.conftest import Lab
from tests.admin.console.conftest import ORIGIN, Desk


async def test_the_printed_address_lets_a_browser_in(desk: Desk) -> None:
    async with desk.stranger() as browser:
        refused = await browser.get("/")
        assert (refused.status_code, refused.text) == (
            403,
            "open the address that mqadmin console printed: it has the token in it\n",
        )
        entered = await browser.get(desk.keys.address)
        cookie = entered.headers["set-cookie"]
        assert desk.keys.token not in cookie
        assert {"HttpOnly", "SameSite=strict", "Path=/"} <= set(cookie.split("; "))
        assert (await browser.get("/")).status_code == 200


@pytest.mark.parametrize(
    "path",
    ["/", "/api/", "/topics", "/groups/g/reset", "/nowhere", "/favicon.ico/x", "/static/none", "/static/%2e%2e/topics"],
)
async def test_nothing_is_shown_without_the_token(desk: Desk, path: str) -> None:
    async with desk.stranger() as browser:
        assert (await browser.get(path)).status_code == 403
        assert (await browser.get(path, params={"token": "guessed"})).status_code == 403
        assert (await browser.get(path, headers={"Cookie": f"{desk.keys.cookie}=guessed"})).status_code == 403


@pytest.mark.parametrize("host", ["evil.example:8088", "127.0.0.1:9999", "127.0.0.1", ""])
async def test_another_name_is_refused(desk: Desk, host: str) -> None:
    answer = await desk.browser.get("/", headers={"Host": host})
    assert (answer.status_code, answer.text) == (421, "this console is not called so: open http://127.0.0.1:8088\n")


async def test_the_page_of_another_site_is_refused(desk: Desk) -> None:
    for origin in ("http://evil.example", "https://127.0.0.1:8088", "null"):
        assert (await desk.browser.get("/", headers={"Origin": origin})).status_code == 403
        form = {"form_token": desk.keys.form, "confirm": "T"}
        answer = await desk.browser.post("/topics/T/delete", data=form, headers={"Origin": origin})
        assert answer.status_code == 403


async def test_a_change_needs_an_origin_and_the_token_of_the_form(lab: Lab, desk: Desk) -> None:
    await lab.topic("T")
    form = {"confirm": "T", "form_token": desk.keys.form}
    assert (await desk.browser.post("/topics/T/delete", data=form)).status_code == 403
    for wrong in ({}, {"form_token": "guessed"}, {"form_token": desk.keys.session}):
        answer = await desk.browser.post("/topics/T/delete", data={"confirm": "T", **wrong}, headers=ORIGIN)
        assert answer.status_code == 403
        assert "the form is of another run of the console" in answer.text
    assert "T" in (await lab.done("topicList")).out.split()
    assert desk.said == []


async def test_without_write_nothing_is_changed(lab: Lab, reader: Desk) -> None:
    await lab.topic("T")
    answer = await reader.post("/topics/T/delete", confirm="T")
    assert (answer.status_code, answer.text) == (
        403,
        "this console only reads: start it with --write to change something\n",
    )
    assert "T" in (await lab.done("topicList")).out.split()
    page = await reader.browser.get("/topics/T/delete")
    assert "<form" not in page.text


async def test_every_answer_forbids_scripts_of_others(desk: Desk) -> None:
    for path in ("/", "/topics/none", "/nowhere", "/api/", "/static/console.js", "/favicon.ico"):
        headers = (await desk.browser.get(path)).headers
        policy = dict(part.split(" ", 1) for part in headers["content-security-policy"].split("; "))
        assert policy["default-src"] == "'none'"
        assert policy["script-src"] == "'self'"
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["cache-control"] == "no-store"


async def test_what_was_changed_is_logged_with_who_what_before_and_after(lab: Lab, desk: Desk) -> None:
    await lab.topic("T", 2)
    fields = {"topic": "T", "readQueueNums": "3", "writeQueueNums": "3", "perm": "6", "brokers": "broker-a"}
    assert (await desk.post("/topics-change", **fields)).status_code == 303
    [line] = desk.said
    assert line.endswith(
        " olivia 127.0.0.1:50000 topic T at broker-a: "
        "2 queues to read, 2 to write, read and write -> 3 queues to read, 3 to write, read and write"
    )
    log = lab.home / "mqadmin" / "changes.jsonl"
    assert '"user":"olivia"' in log.read_text()
    assert stat.S_IMODE(log.stat().st_mode) == 0o600


def test_without_a_variable_who_changed_something_is_the_account_of_the_process(tmp_path: Path) -> None:
    said: list[str] = []
    Changes({"XDG_STATE_HOME": str(tmp_path)}, said.append).add("127.0.0.1:1", "topic T", "none", "there")
    assert f" {getpass.getuser()} 127.0.0.1:1 topic T: none -> there" in said[0]


def test_other_addresses_need_a_certificate() -> None:
    with pytest.raises(BadValue, match="give --tls-cert"):
        listener("0.0.0.0:8088")
    with pytest.raises(BadValue, match="--name"):
        listener("0.0.0.0:8088", certificate="cert.pem")
    place = listener("0.0.0.0:8088", "mq.example", "cert.pem")
    assert place.hosts(8088) == ["mq.example:8088"]
    assert listener("127.0.0.1:0").hosts(81) == ["127.0.0.1:81", "localhost:81", "[::1]:81"]


NO_PORTS = ["127.0.0.1:x", ":80", "127.0.0.1:99999", "[::1]:65536", "h:-1", "h:" + "9" * 5000, "h:\u0663"]


@pytest.mark.parametrize("text", ["8088", "127.0.0.1", *NO_PORTS])
def test_a_wrong_address_is_refused(text: str) -> None:
    with pytest.raises(BadValue, match="--listen takes host:port"):
        listener(text)
