"""The console in a browser: live pages, a reset and its way back, a dead letter sent back, a killed broker."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from selenium.webdriver.common.keys import Keys

from eruca.client import Message, ReceivedMessage, Reject
from eruca.client.sync import Producer, PushConsumer
from tests.support.browser import Browser
from tests.support.eruca import SCRIPTS, ErucaBroker, ErucaNameServer
from tests.support.processes import Process

pytestmark = [pytest.mark.browser, pytest.mark.processes, pytest.mark.slow]
SCRIPT = "<script>alert(1)</script>"
PAGES = [
    *("/", "/brokers", "/nameservers", "/access", "/topics", "/topics?system=1", "/topics/Orders", "/topics-change"),
    *(
        "/topics/Orders/delete",
        "/topics/Orders/send",
        "/groups",
        "/groups/shop",
        "/groups/shop/reset?topic=Orders&to=first",
    ),
    *(
        "/messages",
        "/messages?topic=Orders",
        "/messages/Orders/at/broker-a/0/0",
        "/dead-letters",
        "/dead-letters/cooks",
    ),
    *("/resets", "/nowhere"),
]


class Kitchen(NamedTuple):
    """Two brokers, the console in front of them, a browser that has opened it, and clients of the cluster."""

    browser: Browser
    base: str
    broker_b: ErucaBroker
    producer: Producer
    bodies: list[str]
    again: list[str]
    """Places of the dead letters whose copies came."""

    def open(self, path: str) -> None:
        self.browser.open(self.base + path)


@pytest.fixture(scope="module")
def kitchen(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kitchen]:
    home = tmp_path_factory.mktemp("kitchen")
    with Browser(home / "chromium") as browser:
        nameserver = ErucaNameServer(home / "nameserver")
        brokers = [
            ErucaBroker(home / name, nameserver.address, {"brokerName": name}) for name in ("broker-a", "broker-b")
        ]
        console = _console(home, nameserver.address)
        address = console.wait_for_line("/?token=")
        bodies: list[str] = []
        again: list[str] = []

        def consume(message: ReceivedMessage) -> None:
            bodies.append(message.body.decode())
            if place := message.properties.get("REDRIVEN_FROM"):
                again.append(place)

        try:
            _create(nameserver.address, "Orders")
            with (
                Producer("till", nameserver=nameserver.address) as producer,
                PushConsumer("shop", consume, nameserver=nameserver.address, start_from="first").subscribe("Orders"),
                PushConsumer(
                    "cooks", lambda m: Reject("burnt"), nameserver=nameserver.address, start_from="first"
                ).subscribe("Orders"),
            ):
                for number in range(16):
                    producer.send(
                        Message("Orders", (SCRIPT if number == 0 else f"order {number}").encode(), keys=[SCRIPT])
                    )
                browser.open(address)
                browser.shows("Overview")
                browser.until(lambda: len(bodies) == 16, "all orders are consumed")
                yield Kitchen(browser, address.partition("/?")[0], brokers[1], producer, bodies, again)
        finally:
            console.stop()
            for broker in brokers:
                broker.stop()
            nameserver.stop()


def _console(home: Path, nameserver: str) -> Process:
    command = [str(SCRIPTS / "mqadmin"), "console", "--write", "--listen", "127.0.0.1:0", "-n", nameserver]
    return Process(command, home / "console.out", env={**os.environ, "XDG_STATE_HOME": str(home / "state")})


def _create(nameserver: str, topic: str) -> None:
    command = [str(SCRIPTS / "mqadmin"), "updateTopic", "-n", nameserver, "-c", "JudgeCluster", "-t", topic]
    subprocess.run([*command, "-r", "2", "-w", "2"], check=True, capture_output=True, timeout=60)


def hosts(browser: Browser) -> set[str]:
    """The hosts that the pages have asked since the last look."""
    found = set()
    for entry in browser.window.get_log("performance"):  # type: ignore[no-untyped-call]
        message = json.loads(entry["message"])["message"]
        if message["method"] == "Network.requestWillBeSent":
            scheme, _, rest = message["params"]["request"]["url"].partition("://")
            if scheme.startswith("http"):
                found.add(rest.partition("/")[0])
    return found


@pytest.mark.parametrize("path", PAGES)
def test_a_page_is_clean_labelled_and_fits(kitchen: Kitchen, path: str) -> None:
    browser = kitchen.browser
    kitchen.open(path)
    unlabelled = browser.window.execute_script(
        "return [...document.querySelectorAll('input:not([type=hidden]), select, textarea')]"
        ".filter((each) => !each.labels.length && !each.ariaLabel).map((each) => each.outerHTML)"
    )
    assert unlabelled == []
    assert browser.all("script:not([src])") == []
    name = re.sub(r"[^A-Za-z0-9]+", "-", path).strip("-") or "overview"
    browser.keep_picture(f"{name}-1280")
    browser.narrow(400)
    wide = browser.window.execute_script("return document.documentElement.scrollWidth")
    browser.keep_picture(f"{name}-400")
    browser.narrow(0)
    assert wide <= 400, "at 400 pixels nothing but tables is wider than the window"
    assert [each for each in browser.complaints() if path != "/nowhere"] == []
    assert hosts(browser) <= {kitchen.base.partition("//")[2]}


def test_a_page_is_used_with_the_keyboard(kitchen: Kitchen) -> None:
    browser = kitchen.browser
    kitchen.open("/topics")
    browser.one("body").send_keys(Keys.TAB)
    assert browser.window.switch_to.active_element.text == "To the content"
    browser.one("#filter-topics").send_keys("ord")
    assert [row[0] for row in browser.rows("#topics")] == ["Orders"]
    browser.one("#topics th button").send_keys(Keys.ENTER)
    assert browser.one("#topics th").get_attribute("aria-sort") == "ascending"


def test_what_changes_is_seen_within_seconds(kitchen: Kitchen) -> None:
    browser = kitchen.browser
    kitchen.open("/topics/Orders")

    def counted() -> int:
        return sum(int(row[4]) for row in browser.rows("#queues"))

    before = counted()
    kitchen.producer.send(Message("Orders", b"one more", keys=[SCRIPT]))
    took = browser.until(lambda: counted() == before + 1, "the message is counted")
    print(f"seen after {took:.1f} s")


def test_scripts_in_bodies_keys_and_names_stay_text(kitchen: Kitchen) -> None:
    browser = kitchen.browser
    kitchen.open("/messages?topic=Orders")
    assert SCRIPT in browser.text("#found")
    browser.window.find_element("partial link text", "20").click()
    browser.shows(SCRIPT, "dl")
    kitchen.open("/groups/<script>alert(1)")
    assert "<script>alert(1)" in browser.text()
    assert all("404" in each for each in browser.complaints())


def test_a_group_is_found_reset_confirmed_and_taken_back(kitchen: Kitchen) -> None:
    browser, seen = kitchen.browser, len(kitchen.bodies)
    kitchen.open("/groups")
    browser.one("#filter-groups").send_keys("sho")
    browser.press("shop")
    browser.press("Reset offsets")
    browser.fill("to", "first")
    browser.press("Dry run")
    browser.shows("Nothing has moved.")
    assert len(kitchen.bodies) == seen

    browser.fill("confirm", "shop")
    browser.press("Reset the group")
    browser.shows("Done: 4 of 4 queues confirmed", "#state")
    browser.until(lambda: len(kitchen.bodies) >= seen + 16, "all orders come again")
    browser.fill("confirm", "shop")
    browser.press("Bring the group back to where it was")
    browser.shows(".json, begun", "#live")
    browser.shows("Done: 4 of 4 queues confirmed", "#state")
    kitchen.open("/resets")
    assert browser.text().count("4 of 4 confirmed") == 2


def test_a_dead_letter_goes_back(kitchen: Kitchen) -> None:
    browser = kitchen.browser
    kitchen.open("/dead-letters")
    browser.until(lambda: "cooks" in _again(browser), "the group has dead letters")
    browser.press("cooks")
    browser.shows("Reject: burnt")
    browser.one("[name=places]").click()
    browser.press("Send the marked ones back")
    browser.shows("yes", "#letters")
    browser.until(lambda: len(kitchen.again) == 1, "the message comes again")


def _again(browser: Browser) -> str:
    browser.window.refresh()
    return browser.text()


def test_a_killed_broker_is_seen_and_nothing_of_it_is_0(kitchen: Kitchen) -> None:
    browser = kitchen.browser
    kitchen.open("/")
    browser.shows("Brokers up 2 of 2")
    os.kill(kitchen.broker_b.process.pid, signal.SIGKILL)
    began = time.monotonic()
    browser.shows("Brokers up 1 of 2", "#live")
    assert time.monotonic() - began < 8, (
        "2 s for the console's look and 2 s for the page's, on an idle machine 4 at most"
    )
    text = browser.text("#live")
    assert "Messages in ?/s" in text
    browser.shows("?", ".tiles .tile:nth-child(4)")
    kitchen.open("/groups/shop")
    assert "Lag ≥" in browser.text() and "broker-b" in browser.text(".errors")
    assert browser.complaints() == []
