"""Accounts for operators: create, change and delete them (50, 51), the versions of their files (52), the addresses that
need none (53). Facts: AdminBrokerProcessor in 4.9.7.

A change is on disk, and holds, before the answer. Without access control each is refused with its code. The accounts
themselves (54) are never given out, since their secrets are part of the answer (CVE-2024-23321).
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

from eruca.broker.broker import Broker
from eruca.protocol import api
from eruca.protocol.bodies import DataVersion, encode_file_versions
from eruca.protocol.codes import ResponseCode
from eruca.protocol.errors import Refused
from eruca.protocol.header import Empty
from eruca.protocol.headers.access import (
    AccessConfigVersion,
    DeleteAccessConfig,
    UpdateAccessConfig,
    UpdateGlobalWhiteAddrs,
)
from eruca.remoting import Call, Reply, Routes
from eruca.remoting.access.editor import AccountChange, AccountEditor, ChangeRefused
from eruca.remoting.audit import NOTHING
from eruca.remoting.descriptors import reason

routes: Routes[Broker] = Routes()

OFF = "access control is off at this broker, and there are no accounts: set aclEnable=true, then start it again"


@routes.on(api.UPDATE_AND_CREATE_ACL_CONFIG, changes=lambda ask: f"account {ask.access_key}")
async def update(broker: Broker, call: Call[UpdateAccessConfig]) -> Reply:
    """Create an account or change it; what the request does not name stays as it is, but for ``admin``."""
    ask = call.header
    with _changing(broker, ResponseCode.UPDATE_AND_CREATE_ACL_CONFIG_FAILED) as editor:
        change = AccountChange(
            access_key=ask.access_key,
            secret_key=ask.secret_key,
            white_address=ask.white_remote_address,
            admin=ask.admin,
            default_topic=ask.default_topic_perm,
            default_group=ask.default_group_perm,
            topics=ask.topic_perms,
            groups=ask.group_perms,
        )
        before = editor.accounts.get(ask.access_key)
        await asyncio.to_thread(editor.update, change)
        after = editor.accounts.get(ask.access_key)
        renewed = before is not None and after is not None and before.secret_key != after.secret_key
        call.note(before=before or NOTHING, after=f"{after}{' with another secretKey' if renewed else ''}")
    return Reply()


@routes.on(api.DELETE_ACL_CONFIG, changes=lambda ask: f"account {ask.access_key}")
async def delete(broker: Broker, call: Call[DeleteAccessConfig]) -> Reply:
    """Delete an account."""
    key = call.header.access_key
    with _changing(broker, ResponseCode.DELETE_ACL_CONFIG_FAILED) as editor:
        before = editor.accounts.get(key)
        await asyncio.to_thread(editor.delete, key)
        call.note(before=before, after=NOTHING)
    return Reply()


@routes.on(api.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG, changes="global white addresses")
async def set_white_addresses(broker: Broker, call: Call[UpdateGlobalWhiteAddrs]) -> Reply:
    """Set the addresses from which requests need no account, in one access file."""
    ask = call.header
    with _changing(broker, ResponseCode.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG_FAILED) as editor:
        before = await asyncio.to_thread(editor.set_white_addresses, ask.global_white_addrs, ask.acl_file_full_path)
        call.note(before=before or NOTHING, after=ask.global_white_addrs or NOTHING)
    return Reply()


@routes.on(api.GET_BROKER_CLUSTER_ACL_INFO, reads=True)
def versions(broker: Broker, call: Call[Empty]) -> Reply:
    """The version of each access file, and that of the main file."""
    accounts = broker.accounts
    if accounts is None:
        raise Refused(ResponseCode.SYSTEM_ERROR, OFF)
    main = accounts.versions.get(accounts.main_file, DataVersion())
    return Reply(
        header=AccessConfigVersion(
            version=main.encode().decode(),
            all_acl_file_version=encode_file_versions({str(file): each for file, each in accounts.versions.items()}),
            broker_name=broker.name,
            broker_addr=broker.address,
            cluster_name=broker.cluster,
        )
    )


@routes.on(api.GET_BROKER_CLUSTER_ACL_CONFIG, reads=True)
def show(broker: Broker, call: Call[Empty]) -> Reply:
    """Refused, whoever asks."""
    raise Refused(
        ResponseCode.NO_PERMISSION,
        "accounts are not given out, since their secrets are part of the answer (CVE-2024-23321): read the access "
        "files on the broker's machine; mqadmin clusterAclConfigVersion names them",
    )


@contextmanager
def _changing(broker: Broker, code: ResponseCode) -> Iterator[AccountEditor]:
    """Context of a change: refuses the request with ``code`` if it cannot be made."""
    if broker.account_editor is None:
        raise Refused(code, OFF)
    try:
        yield broker.account_editor
    except ChangeRefused as fault:
        raise Refused(code, str(fault)) from None
    except OSError as fault:
        raise Refused(
            code, f"the access file cannot be written ({reason(fault)}): change it on the broker's machine"
        ) from None
