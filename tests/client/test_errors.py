"""What brokers of Apache say who refuse something, and what a user of the client is told of it."""

from __future__ import annotations

import pytest

from eruca.client.errors import AccessDenied, BrokerRefused, SendFailed, translate
from eruca.protocol.errors import Refused

_ACL = "org.apache.rocketmq.acl.common.AclException: {}, org.apache.rocketmq.acl.plain.PlainPermissionManager.validate"
_SUBJECT = "User:reader has no permission to access {} from 127.0.0.1, no matched policies."


@pytest.mark.parametrize(
    ("code", "remark", "help_"),
    [
        (1, _ACL.format("No accessKey is configured"), "give credentials="),
        (1, _ACL.format("No acl config for nobody"), "look at the access key"),
        (1, _ACL.format("Check signature failed for accessKey=me"), "the secret key is not the one"),
        (1, _ACL.format("No default permission for topic:T"), "an operator may grant it"),
        (1, _ACL.format("Need admin permission for request code=17, but accessKey=me is not"), "may grant it"),
        (16, "username cannot be null.", "give credentials="),
        (16, "User:nobody is not found.", "look at the access key"),
        (16, "User:me is disabled.", "an operator may enable the account"),
        (16, "check signature failed.", "the secret key is not the one"),
        (16, _SUBJECT.format("Topic:T"), "mqadmin updateAclConfig, in RocketMQ 5 createAcl"),
    ],
)
def test_who_is_not_let_in_is_told_what_helps(code: int, remark: str, help_: str) -> None:
    error = translate(Refused(code, remark))
    assert isinstance(error, AccessDenied) and (error.code, error.remark) == (code, remark)
    assert not error.retriable
    assert remark in str(error) and help_ in str(error)
    failed = SendFailed("T", 3, 0.1, ["broker-a"] * 3, error)
    assert not failed.retriable and help_ in str(failed) and failed.__cause__ is error


@pytest.mark.parametrize(
    ("code", "remark", "retriable"),
    [
        (1, "the topic says User:x not found", True),  # not of the access control
        (16, "the broker[127.0.0.1:10911] sending message is forbidden", True),
        (2, "[TIMEOUT_CLEAN_QUEUE]broker busy", True),
        (13, "the message is illegal", False),
    ],
)
def test_other_refusals_are_as_their_codes_say(code: int, remark: str, retriable: bool) -> None:
    error = translate(Refused(code, remark))
    assert type(error) is BrokerRefused and error.retriable is retriable
    assert SendFailed("T", 3, 0.1, ["broker-a"], error).retriable is retriable
