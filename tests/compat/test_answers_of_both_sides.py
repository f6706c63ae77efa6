"""The same requests to Apache's daemons of 4.9.7 and to Eruca's: the same answers, by value.

Not the same are the refusals of what Apache's code did not expect: it answers with an exception and its place in the
source, Eruca with a sentence; the codes are the same.
"""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import Any

from tests.compat import asked_broker, asked_nameserver
from tests.compat.asked import Said, Session, answering
from tests.compat.columns import has_its_own_reason
from tests.compat.conftest import Cluster
from tests.support.apache import ApacheCluster
from tests.support.eruca import ErucaCluster
from tests.support.peers import Peer

NOT_SET = "not set any response code"
"""What 4.9.7 leaves in the remark of some answers with code 0; it means nothing."""
EXCEPTION = re.compile(r"^(?:[a-z]\w*\.)+\w*(?:Exception|Error)\b")
OF_THE_PLACE = re.compile(r"(?:Path|Port|Addr|Home|ThreadPoolNums)|^storePath|^bitMapLengthConsumeQueueExt")
"""Settings with a path, an address or a number of threads (4.9.7 takes some from the machine), and the length of a
filter's bits, which 4.9.7 computes when it starts."""
OTHERWISE = {
    "11 SQL92": "the setting that switches it on is named",
    "46 SQL92": "the setting that switches it on is named",
    "33 within a message": "Apache reads a size out of the middle of a record",
    "323 no id": "what is wrong with the id is said",
    "323 no such message": "what is wrong with the id is said",
}
"""Requests whose refusal has the same code and a clearer remark, with the reason."""
LARGER = {
    "maxTransferCountOnMessageInMemory": "1024",
    "maxTransferCountOnMessageInDisk": "1024",
    "maxTransferBytesOnMessageInDisk": "262144",
}
"""Defaults that differ on purpose (docs/operations.md, how much a pull brings)."""


async def _session(cluster: Cluster) -> dict[str, Said]:
    session = Session()
    operator = await Peer().connect(cluster.broker.address)
    member = await Peer("GO", 317, answering).connect(cluster.broker.address)
    names = await Peer().connect(cluster.address)
    try:
        await asked_broker.run(session, operator, member)
        await asked_nameserver.run(session, names, cluster.broker.address)
    finally:
        for peer in (operator, member, names):
            await peer.close()
    return session.answers


async def _both(*clusters: Cluster) -> list[dict[str, Said]]:
    return await asyncio.gather(*(_session(cluster) for cluster in clusters))


def test_every_request_has_the_same_answer(tmp_path: Path) -> None:
    with ApacheCluster("4.9.7", tmp_path / "apache") as apache, ErucaCluster(tmp_path / "eruca") as eruca:
        expected, found = asyncio.run(_both(apache, eruca))

    assert found.keys() == expected.keys()
    differences = {}
    for label, was in expected.items():
        now = found[label]
        accident = was.remark is not None and EXCEPTION.match(was.remark)
        if accident or label in OTHERWISE:
            assert now.code == was.code, label
            assert now.remark and "\n" not in now.remark and not EXCEPTION.match(now.remark), label
        elif label == "45":  # an offset that is not told is 0
            assert {level: offset for level, offset in now.body["offsetTable"].items() if offset} == {}
        elif label in ("26", "319"):
            settings = {key: value for key, value in _settings(was).items() if not has_its_own_reason(key)}
            settings |= {key: value for key, value in LARGER.items() if key in settings}
            assert {key: _settings(now).get(key) for key in settings} == settings, label
        elif comparable(was) != comparable(now):
            differences[label] = (was, now)
    assert differences == {}, "\n".join(f"{label}\n  {was}\n  {now}" for label, (was, now) in differences.items())


def comparable(answer: Said) -> Any:
    if answer.remark == NOT_SET:
        answer = answer._replace(remark=None)
    return answer._replace(body=_without_what_is_eruca_s(answer.body))


def _settings(answer: Said) -> dict[str, str]:
    """A configuration, without what differs from machine to machine and from run to run."""
    lines = (line.partition("=") for line in answer.body.splitlines())
    return {key: value for key, _, value in lines if not OF_THE_PLACE.search(key)}


def _without_what_is_eruca_s(body: Any) -> Any:
    """A body without the keys that only Eruca gives (``pullOffset``, of 5.x)."""
    if isinstance(body, dict):
        return {key: _without_what_is_eruca_s(each) for key, each in body.items() if key != "pullOffset"}
    return [_without_what_is_eruca_s(each) for each in body] if isinstance(body, list) else body
