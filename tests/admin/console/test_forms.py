"""Forms of the console: their fields are the options of commands, and what is filled in is judged as those are."""

from __future__ import annotations

import re

import pytest

from eruca.admin.commands import find
from eruca.admin.posix import INT32, INT64
from tests.admin.conftest import Lab
from tests.admin.console.conftest import Desk

NO_OPTIONS = {"form_token", "confirm", "brokers", "places", "all", "member"}
"""What a person points at: `eruca.admin.console.forms` says why no command declares it."""


def fields_of(page: str) -> set[str]:
    """The names of all fields of a page but those that no command has."""
    return set(re.findall(r'<(?:input|select|textarea)[^>]* name="([^"]+)"', page)) - NO_OPTIONS


async def forms(lab: Lab) -> dict[str, list[str]]:
    """The pages with forms, and the commands whose options they ask for."""
    await lab.topic("T", 2)
    await lab.send("T", "one")
    await lab.topic("%DLQ%g")
    await lab.send("%DLQ%g", "a letter")
    await lab.commit("g", "T", 0)
    return {
        "/topics-change": ["updateTopic"],
        "/topics-change?topic=T": ["updateTopic"],
        "/topics/T/send": ["sendMessage"],
        "/topics/T/delete": [],
        "/groups/g/reset?topic=T&to=last&new-group=on": ["resetOffset"],
        "/messages": ["queryMsgById", "queryMsgByKey", "queryMsgByOffset", "printMsg"],
        "/messages/T/at/broker-a/0/0": [],
        "/dead-letters/g": ["move"],
        f"/brokers/{lab.broker}/settings/fileReservedTime": ["updateBrokerConfig"],
    }


async def test_every_field_is_an_option_of_a_command_with_its_words(lab: Lab, desk: Desk) -> None:
    seen = 0
    for path, names in (await forms(lab)).items():
        commands = [found for name in names if (found := find(name)) is not None]
        options = {each.name.strip(): each for command in commands for each in command.options}
        page = (await desk.browser.get(path)).text
        for name in fields_of(page):
            words = options[name].help.partition(";")[0]
            assert words.lower() in page.lower().replace("&#39;", "'"), (path, name)
            seen += 1
    assert seen > 20


async def test_numbers_have_the_bounds_of_their_options(lab: Lab, desk: Desk) -> None:
    await lab.topic("T")
    page = (await desk.browser.get("/messages")).text
    assert f'name="queueId" id="queueId" value="" type="number" min="0" max="{INT32}"' in page
    assert f'name="offset" id="offset" value="" type="number" min="0" max="{INT64}"' in page


@pytest.mark.parametrize(
    ("path", "fields", "sentence"),
    [
        ("/topics-change", {"topic": "T", "brokers": "broker-a", "perm": "8"}, "perm takes a whole number, 7 or less"),
        ("/topics-change", {"topic": " ", "brokers": "broker-a", "perm": "6"}, "the form lacks topic"),
        ("/topics-change", {"topic": "T", "perm": "6"}, "mark the brokers that are to have the topic"),
        ("/topics/T/send", {"body": " "}, "the form lacks body"),
        ("/topics/T/send", {"body": "b", "broker": "broker-a", "qid": "\u0661x"}, "qid takes a whole number"),
        ("/topics/T/send", {"body": "b", "qid": "0"}, "give the broker, too"),
        ("/groups/g/reset", {"topic": "T", "to": "first", "force": "maybe"}, "force takes true or false, not"),
        ("/groups/g/reset", {"topic": "T", "to": "/etc/passwd"}, "this console reads no file of its machine"),
        ("/groups/g/reset", {"topic": "T", "to": "30th of May"}, "30th of May"),
        ("/dead-letters/g/back", {"all": "on", "rate": "0"}, "rate takes a whole number, 1 or more, not 0"),
        ("/dead-letters/g/back", {"all": "on", "rate": "10001"}, "rate takes a whole number, 10000 or less here"),
    ],
)
async def test_a_wrong_value_is_refused_as_by_the_command(
    lab: Lab, desk: Desk, path: str, fields: dict[str, str], sentence: str
) -> None:
    await lab.topic("T")
    answer = await desk.post(path, **{"confirm": "g", **fields})
    assert (answer.status_code, sentence in answer.text) == (400, True), answer.text
    assert desk.said == []


@pytest.mark.parametrize(
    ("path", "sentence"),
    [
        ("/topics-change?topic=T&readQueueNums=many&brokers=broker-a", "readQueueNums takes a whole number, not"),
        ("/topics-change?topic=T&readQueueNums=1", "mark the brokers that are to have the topic"),
        ("/messages?topic=T&beginTimestamp=soon", "soon"),
        ("/messages?topic=T&brokerName=broker-a", "give the number of the queue, too"),
        ("/messages?topic=T&queueId=0", "give its name, too"),
        ("/messages?topic=T&brokerName=broker-a&queueId=0&offset=-1", "offset takes a whole number, 0 or more, not -1"),
        ("/messages?msgKey=k", "give the topic, too"),
        ("/groups/g/reset?topic=T&to=first&force=maybe", "force takes true or false, not"),
    ],
)
async def test_a_question_that_is_wrong_leaves_the_form_with_what_was_filled_in(
    lab: Lab, desk: Desk, path: str, sentence: str
) -> None:
    await lab.topic("T")
    answer = await desk.browser.get(path)
    assert answer.status_code == 200
    assert sentence in answer.text
    for name, value in (pair.split("=") for pair in path.partition("?")[2].split("&")):
        assert f'value="{value}"' in answer.text or f"<option selected>{value}" in answer.text, (name, value)
    assert (await desk.browser.get(f"/api{path}")).json()["refusal"]


async def test_a_form_with_countless_fields_is_refused(desk: Desk) -> None:
    body = f"form_token={desk.keys.form}" + "&a" * 20_000
    headers = {"Origin": "http://127.0.0.1:8088", "Content-Type": "application/x-www-form-urlencoded"}
    answer = await desk.browser.post("/topics-change", content=body, headers=headers)
    assert answer.status_code == 400 and "at most 10000 fields" in answer.text
