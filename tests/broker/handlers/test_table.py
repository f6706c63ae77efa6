"""Every request of the protocol table is served by the broker, or is listed here with the reason why not."""

from pathlib import Path

from eruca.broker.handlers import TABLES
from eruca.protocol.api import ENDPOINTS
from eruca.protocol.codes import RequestCode
from tests.support.desk import Desk

OF_THE_NAMESERVER = {100, 101, 102, 103, 104, 105, 106, 205, 206, 216, 219, 224, 304, 311, 312, 313, 318, 319, 322, 327}
TO_CLIENTS = {39, 40, 220, 221, 326}
NEVER = {13, 22, 23, 27, *range(209, 215), 217, 218, 301, 302}
"""Numbers that 4.9.7 knows by name and does not serve either."""


def served() -> set[int]:
    return {code for table in TABLES for code in table.handlers}


def test_every_request_is_served_or_has_a_reason_not_to_be() -> None:
    known = {int(endpoint.code) for endpoint in ENDPOINTS}
    assert known - served() == OF_THE_NAMESERVER | TO_CLIENTS


def test_nothing_is_served_twice() -> None:
    codes = [code for table in TABLES for code in table.handlers]
    assert len(codes) == len(set(codes))


def test_what_is_served_has_a_line_in_the_documentation() -> None:
    page = (Path(__file__).parents[3] / "docs/broker-requests.md").read_text()
    rows = {line.split("|")[1].strip() for line in page.splitlines() if line.startswith("| ")}
    listed = {int(number) for row in rows for number in row.split(",") if number.strip().isdecimal()}
    assert served() <= listed


async def test_what_is_not_served_is_answered_with_3(desk: Desk) -> None:
    for code in sorted(OF_THE_NAMESERVER | TO_CLIENTS | NEVER | {9999}):
        answer = await desk.ask(code)
        assert (answer.code, answer.remark) == (3, f" request type {code} not supported")


OF_ELECTIONS = [
    RequestCode.CONTROLLER_GET_METADATA_INFO,
    RequestCode.CONTROLLER_GET_SYNC_STATE_DATA,
    RequestCode.GET_BROKER_EPOCH_CACHE,
]
"""Requests that need no fields."""


async def test_a_request_without_its_fields_is_refused_and_the_connection_goes_on(desk: Desk) -> None:
    needy = [
        endpoint for endpoint in ENDPOINTS if endpoint.code in served() and endpoint.code != RequestCode.HEART_BEAT
    ]
    others = {
        RequestCode.GET_BROKER_CLUSTER_ACL_CONFIG: 16,  # secrets are given to nobody
        **dict.fromkeys(OF_ELECTIONS, 3),  # this broker's group elects nobody
    }
    for endpoint in needy:
        expected = (others[endpoint.code],) if endpoint.code in others else (0, 1)
        assert (await desk.ask(int(endpoint.code))).code in expected, endpoint.code.name
    assert (await desk.ask(30, {"topic": "T", "queueId": 0})).code == 0
