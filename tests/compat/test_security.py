"""Signed and encrypted requests, judged by brokers of Apache that want both: the client and mqadmin.

The nameserver takes TLS and plain connections; the broker takes TLS alone, asks for certificates, and checks accounts.
"""

from __future__ import annotations

import asyncio
import io
import json
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Literal

import pytest

from eruca.admin.cli import run
from eruca.client import (
    ClientSettings,
    Credentials,
    Later,
    Message,
    Producer,
    PullConsumer,
    PushConsumer,
    ReceivedMessage,
    SendStatus,
    Tls,
    TransactionProducer,
    TransactionState,
)
from eruca.client.errors import AccessDenied, ClientError, NameserverUnreachable, SendFailed, TopicNotFound
from eruca.protocol.api import GET_MAX_OFFSET
from eruca.protocol.headers.offsets import QueueOf
from tests.support.apache import ApacheBroker, ApacheNameServer
from tests.support.certificates import PASSWORD, Certificates
from tests.support.java import Judge
from tests.support.spark import spark_session

USER = Credentials("ordinary-user", "its-secret-key")
READER = Credentials("reading-user", "reading-secret")
WAITING = Credentials("waiting-user", "waiting-secret")
ADMIN = Credentials("admin-user", "admin-secret-key")
_PLAIN_ACL = """
globalWhiteRemoteAddresses: []
accounts:
- accessKey: ordinary-user
  secretKey: its-secret-key
  admin: false
  defaultTopicPerm: PUB|SUB
  defaultGroupPerm: SUB
- accessKey: reading-user
  secretKey: reading-secret
  admin: false
  defaultTopicPerm: SUB
  defaultGroupPerm: SUB
- accessKey: waiting-user
  secretKey: waiting-secret
  admin: false
  defaultTopicPerm: SUB
  defaultGroupPerm: DENY
- accessKey: admin-user
  secretKey: admin-secret-key
  admin: true
"""
_PROVIDERS = "org.apache.rocketmq.auth.authentication.provider"
_PERMISSIONS = "org.apache.rocketmq.auth.authorization.provider"
_ACL = {"4.9.7": {"aclEnable": "true"}}
_ACL["5.3.3"] = {
    "authenticationEnabled": "true",
    "authenticationProvider": f"{_PROVIDERS}.DefaultAuthenticationProvider",
    "authenticationMetadataProvider": f"{_PROVIDERS}.LocalAuthenticationMetadataProvider",
    "initAuthenticationUser": json.dumps({"username": "ordinary-user", "password": "its-secret-key"}),
    "innerClientAuthenticationCredentials": json.dumps({"accessKey": "ordinary-user", "secretKey": "its-secret-key"}),
    "authorizationEnabled": "true",
    "authorizationProvider": f"{_PERMISSIONS}.DefaultAuthorizationProvider",
    "authorizationMetadataProvider": f"{_PERMISSIONS}.LocalAuthorizationMetadataProvider",
}
_WRONG = {
    "4.9.7": ("Check signature failed for accessKey=ordinary-user", "No acl config for nobody", "No accessKey is"),
    "5.3.3": ("check signature failed", "User:nobody is not found", "username cannot be null"),
}
_HELP = ("the secret key is not the one", "look at the access key", "give credentials=")
_MAY_NOT_SEND = {
    "4.9.7": "No default permission for .*Read",
    "5.3.3": "User:reading-user has no permission to access Topic:Read",
}


@dataclass
class Guarded:
    """A cluster of one release, and the certificates that it knows."""

    release: str
    nameserver: ApacheNameServer
    broker: ApacheBroker
    certificates: Certificates
    home: Path

    @property
    def tls(self) -> Tls:
        own = self.certificates.client
        return Tls(
            ca_file=self.certificates.ca_file,
            certificate_file=own.certificate,
            key_file=own.encrypted_key,
            key_password=PASSWORD,
        )

    def settings(self, account: Credentials | None = USER) -> ClientSettings:
        return ClientSettings(nameserver=self.nameserver.address, credentials=account, tls=self.tls)


@contextmanager
def operator_of(guarded: Guarded) -> Iterator[Judge]:
    """Apache's mqadmin in the name of the first user, encrypted as the broker wants it."""
    own, ca = guarded.certificates.client, guarded.certificates.ca_file
    tls = {"certPath": own.certificate, "keyPath": own.key, "trustCertPath": ca, "authServer": "true"}
    options = ["-Dtls.enable=true", "-Dtls.test.mode.enable=false", "-Dtls.config.file=/nowhere"]
    options += [f"-Dtls.client.{name}={value}" for name, value in tls.items()]
    account = f"accessKey: {USER.access_key}\nsecretKey: {USER.secret_key}\n"
    (guarded.home / "conf" / "tools.yml").write_text(account)
    with Judge(guarded.release, guarded.home, options=options) as judge:
        yield judge


async def order(operator: Judge, guarded: Guarded, command: str, *line: str) -> None:
    """A command at the broker that must succeed."""
    line = (command, "-b", guarded.broker.address, *line)
    done = await asyncio.to_thread(operator.call, "admin", line=line)
    assert f"to {guarded.broker.address} success" in done["stdout"], done


async def grant(operator: Judge, guarded: Guarded, account: Credentials, resources: str) -> None:
    """Let an account read these."""
    line = ("-s", f"User:{account.access_key}", "-r", resources, "-a", "Sub", "-d", "Allow")
    await order(operator, guarded, "createAcl", *line)


@pytest.fixture(scope="module", params=["4.9.7", "5.3.3"])
def guarded(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    release = request.param
    home = tmp_path_factory.mktemp(f"guarded-{release}")
    certificates = Certificates(home / "certificates")
    own = certificates.server
    options = [
        "-Dtls.test.mode.enable=false",
        "-Dtls.config.file=/nowhere",
        f"-Dtls.server.certPath={own.certificate}",
        f"-Dtls.server.keyPath={own.key}",
    ]
    strict = [
        "-Dtls.server.mode=enforcing",
        "-Dtls.enable=false",  # towards the nameserver
        "-Dtls.server.need.client.auth=require",
        "-Dtls.server.authClient=true",
        f"-Dtls.server.trustCertPath={certificates.ca_file}",
    ]
    (home / "conf").mkdir()
    (home / "conf" / "plain_acl.yml").write_text(_PLAIN_ACL)
    names = ApacheNameServer(release, home, options=[*options, "-Dtls.server.mode=permissive"])
    try:
        broker = ApacheBroker(release, home, names.address, _ACL[release], options=[*options, *strict])
    except BaseException:
        names.process.kill()
        raise
    yield Guarded(release, names, broker, certificates, home)
    broker.process.kill()
    names.process.kill()


@pytest.mark.parametrize("header", ["JSON", "ROCKETMQ", "MSGPACK"])
async def test_all_that_a_client_does(guarded: Guarded, header: Literal["JSON", "ROCKETMQ", "MSGPACK"]) -> None:
    settings = replace(guarded.settings(), header=header)
    topic, group = f"topic-{header}", f"group-{header}"
    seen: list[tuple[bytes, int]] = []
    enough = asyncio.Event()

    async def listener(message: ReceivedMessage) -> Later | None:
        seen.append((message.body, message.reconsume_times))
        if len(seen) == 5:
            enough.set()
        return Later(delay_level=1) if (message.body, message.reconsume_times) == (b"twice", 0) else None

    async with (
        TransactionProducer("producers", lambda message: None, settings=settings) as producer,
        PullConsumer(group, settings=settings) as puller,
    ):
        sent = await producer.send(
            Message(topic, "Größe 大きさ".encode(), tags="Öl", keys="ключ", properties={"a": "ä"})
        )
        assert sent.status is SendStatus.SEND_OK
        await producer.send(Message(topic, b"twice"))
        await producer.send_batch([Message(topic, b"one of many")])
        done = await producer.send_in_transaction(
            Message(topic, b"in a transaction"), lambda message, transaction: TransactionState.COMMIT
        )
        assert done.error is None
        async with PushConsumer(group, listener, settings=settings, start_from="first").subscribe(topic):
            await asyncio.wait_for(enough.wait(), 90)
        (record,) = (await puller.pull(sent.queue, sent.offset, 1)).records
        assert (record.body.decode(), record.tags, record.keys) == ("Größe 大きさ", "Öl", ["ключ"])
        assert await puller.min_offset(sent.queue) == 0
        await puller.update_offset(sent.queue, 0)
        assert await puller.query_offset(sent.queue) == 0

    assert sorted(seen) == sorted(
        [("Größe 大きさ".encode(), 0), (b"twice", 0), (b"twice", 1), (b"one of many", 0), (b"in a transaction", 0)]
    )


@pytest.mark.parametrize("header", ["JSON", "ROCKETMQ", "MSGPACK"])
@pytest.mark.parametrize("case", [0, 1, 2])
async def test_an_account_that_is_none(
    guarded: Guarded, case: int, header: Literal["JSON", "ROCKETMQ", "MSGPACK"]
) -> None:
    account = [replace(USER, secret_key="a-wrong-secret"), Credentials("nobody", "some-secret"), None][case]
    async with PullConsumer(settings=replace(guarded.settings(account), header=header)) as puller:
        with pytest.raises(AccessDenied) as refused:
            await puller.session.call(guarded.broker.address, GET_MAX_OFFSET, QueueOf(topic="T", queue_id=0))

    said, help_ = str(refused.value).split("; ")
    assert _WRONG[guarded.release][case] in said and "secret" not in said
    assert _HELP[case] in help_ and not refused.value.retriable


async def test_an_account_that_may_only_read(guarded: Guarded, caplog: pytest.LogCaptureFixture) -> None:
    with ExitStack() as stack:
        if guarded.release == "5.3.3":
            operator = stack.enter_context(operator_of(guarded))
            await order(operator, guarded, "createUser", "-u", READER.access_key, "-p", READER.secret_key)
            await grant(operator, guarded, READER, "Topic:Read,Group:g")
        settings = guarded.settings(READER)
        async with (
            Producer("producers", settings=guarded.settings()) as producer,
            Producer("readers", settings=settings) as reader,
            PullConsumer("g", settings=settings) as puller,
        ):
            sent = await producer.send(Message("Read", b"x"))
            await registered(puller, "Read")
            assert len((await puller.pull(sent.queue, sent.offset)).records) == 1
            with pytest.raises(SendFailed, match=_MAY_NOT_SEND[guarded.release]) as failed:
                await reader.send(Message("Read", b"y"))
            assert isinstance(failed.value.__cause__, AccessDenied) and not failed.value.retriable
            if guarded.release == "5.3.3":
                with pytest.raises(AccessDenied, match="User:reading-user has no permission to access Group:other"):
                    await puller.query_offset(sent.queue, group="other")
                missing = "User:reading-user has no permission to access Group:other"
                granted = partial(grant, operator, guarded, READER, "Group:other")
                await goes_on_when_it_is_granted(guarded, READER, missing, granted, caplog)
            else:
                missing = "No default permission for group:other"
                granted = partial(asyncio.to_thread, rewrite_accounts, guarded)
                await goes_on_when_it_is_granted(guarded, WAITING, missing, granted, caplog)


async def registered(client: PullConsumer, topic: str) -> None:
    """Wait until the nameserver has a topic that a send made: Apache's broker registers it after its answer."""
    async with asyncio.timeout(30):
        while True:
            with suppress(TopicNotFound):
                await client.fetch_queues(topic)
                return
            await asyncio.sleep(0.05)


def rewrite_accounts(guarded: Guarded) -> None:
    """Let all read; a broker of 4.9.7 watches the file."""
    (guarded.home / "conf" / "plain_acl.yml").write_text(_PLAIN_ACL.replace("DENY", "SUB"))


async def goes_on_when_it_is_granted(
    guarded: Guarded,
    account: Credentials,
    missing: str,
    granted: Callable[[], Awaitable[None]],
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A consumer that may not read says what is missing, waits for it, and begins when it has it."""
    seen, come = list[bytes](), asyncio.Event()

    async def listener(message: ReceivedMessage) -> None:
        seen.append(message.body)
        come.set()

    consumer = PushConsumer("other", listener, settings=guarded.settings(account), start_from="first")
    async with consumer.subscribe("Read"):
        async with asyncio.timeout(25):
            while missing not in caplog.text:  # noqa: ASYNC110 (the log tells nobody)
                await asyncio.sleep(0.05)
        assert not seen
        await granted()
        await asyncio.wait_for(come.wait(), 25)  # the next regular heartbeat comes after 30 s
    assert seen == [b"x"]


async def test_certificates_are_replaced_while_a_client_runs(guarded: Guarded, tmp_path: Path) -> None:
    others, own = Certificates(tmp_path / "others"), tmp_path / "own.pem"
    own.write_bytes(others.client.certificate.read_bytes() + others.client.key.read_bytes())
    tls = Tls(ca_file=guarded.certificates.ca_file, certificate_file=own)
    async with PullConsumer(settings=replace(guarded.settings(), tls=tls)) as puller:
        with pytest.raises(ClientError, match="does not accept this client's certificate"):
            await puller.session.call(guarded.broker.address, GET_MAX_OFFSET, QueueOf(topic="T", queue_id=0))
        mine = guarded.certificates.client
        own.write_bytes(mine.certificate.read_bytes() + mine.key.read_bytes())
        await puller.session.call(guarded.broker.address, GET_MAX_OFFSET, QueueOf(topic="Any", queue_id=0))


# ---------------------------------------------------------------------- TLS


async def failure(guarded: Guarded, tls: Tls | None) -> str:
    """What a client with these settings is told by the broker."""
    settings = ClientSettings(nameserver=guarded.nameserver.address, credentials=USER, tls=None)
    async with PullConsumer(settings=replace(settings, tls=tls)) as puller:
        with pytest.raises(ClientError) as failed:
            await puller.session.call(guarded.broker.address, GET_MAX_OFFSET, QueueOf(topic="T", queue_id=0))
    return str(failed.value)


async def test_what_is_said_when_tls_does_not_fit(guarded: Guarded) -> None:
    trusting = Tls(ca_file=guarded.certificates.ca_file)
    assert "if it serves TLS only, TLS must be set here, too" in await failure(guarded, None)
    assert "its certificate is not trusted" in await failure(guarded, Tls())
    assert "does not accept this client's certificate" in await failure(guarded, trusting)
    other = replace(trusting, server_name="other.example")
    assert "its certificate is for another host" in await failure(guarded, other)


async def test_a_nameserver_that_takes_both(guarded: Guarded) -> None:
    for tls in (None, guarded.tls, Tls(verify=False)):
        async with PullConsumer(settings=ClientSettings(nameserver=guarded.nameserver.address, tls=tls)) as puller:
            assert (await puller.session.cluster()).broker_addr_table.keys() == {"broker-a"}


async def test_a_server_without_tls(guarded: Guarded, tmp_path: Path) -> None:
    plain = ApacheNameServer(guarded.release, tmp_path, options=["-Dtls.server.mode=disabled"])
    try:
        async with PullConsumer(settings=ClientSettings(nameserver=plain.address, tls=guarded.tls)) as puller:
            with pytest.raises(NameserverUnreachable, match="it may serve no TLS"):
                await puller.session.cluster()
    finally:
        plain.process.kill()


# ---------------------------------------------------------------------- Spark


@pytest.mark.parametrize("guarded", ["4.9.7"], indirect=True)
def test_spark_with_an_account(quick_java: None, guarded: Guarded, tmp_path: Path) -> None:
    """Driver and tasks sign and encrypt what they ask, in batches and streams; without an account nothing is done."""
    own = guarded.certificates.client
    reached = {
        "nameServer": guarded.nameserver.address,
        "tls": "true",
        "tlsCaFile": str(guarded.certificates.ca_file),
        "tlsCertificateFile": str(own.certificate),
        "tlsKeyFile": str(own.encrypted_key),
        "tlsKeyPassword": PASSWORD,
    }
    account = {**reached, "accessKey": USER.access_key, "secretKey": USER.secret_key}
    wrong = {**account, "secretKey": "a-wrong-secret"}
    with spark_session(tmp_path) as spark:
        rows = spark.range(500, numPartitions=2).selectExpr("CAST(id AS STRING) AS body", "id AS shardingKey")

        def bodies(options: dict[str, str], topic: str) -> list[str]:
            frame = spark.read.format("rocketmq").options(**options, subscribe=topic).load()
            return sorted(row.body for row in frame.selectExpr("CAST(body AS STRING) AS body").collect())

        def copy(topic: str, **options: str) -> None:
            source = spark.readStream.format("rocketmq").options(**account, startingOffsets="earliest")
            sink = source.option("subscribe", "BySpark").load().select("body").writeStream.format("rocketmq")
            sink = sink.options(**account, topic=topic, checkpointLocation=str(tmp_path / topic), **options)
            assert sink.trigger(availableNow=True).start().awaitTermination(200)

        rows.write.format("rocketmq").options(**account, topic="BySpark").mode("append").save()
        everything = sorted(str(number) for number in range(500))
        assert bodies(account, "BySpark") == everything
        for options in (wrong, reached):
            with pytest.raises(Exception, match=r"Check signature failed|No accessKey is configured") as refused:
                bodies(options, "BySpark")
            assert "a-wrong-secret" not in str(refused.value)
            with pytest.raises(Exception, match=r"Check signature failed|No accessKey is configured") as refused:
                rows.write.format("rocketmq").options(**options, topic="BySpark").mode("append").save()
            assert "a-wrong-secret" not in str(refused.value)

        copy("Copied")
        assert bodies(account, "Copied") == everything
        markers = ("updateTopic", "-b", guarded.broker.address, "-t", "SparkMarkers", "-r", "1", "-w", "1")
        assert asyncio.run(mqadmin(guarded, ADMIN, *markers))[0] == 0
        copy("CopiedAtOnce", delivery="transactional", markerTopic="SparkMarkers")
        assert bodies(account, "CopiedAtOnce") == everything


# ---------------------------------------------------------------------- mqadmin


async def mqadmin(guarded: Guarded, account: Credentials | None, *line: str) -> tuple[int, str, str]:
    """Status, output and errors of a command, as an operator with that account types it."""
    home = guarded.home / f"operator-{account.access_key if account else 'none'}"
    (home / "conf").mkdir(parents=True, exist_ok=True)
    if account is not None:
        (home / "conf" / "tools.yml").write_text(f"accessKey: {account.access_key}\nsecretKey: {account.secret_key}\n")
    own = guarded.certificates.client
    (home / "tls.properties").write_text(
        f"tls.client.trustCertPath={guarded.certificates.ca_file}\ntls.client.certPath={own.certificate}\n"
        f"tls.client.keyPath={own.encrypted_key}\ntls.client.keyPassword={PASSWORD}\ntls.client.authServer=true\n"
    )
    environment = {
        "ROCKETMQ_HOME": str(home),
        "NAMESRV_ADDR": guarded.nameserver.address,
        "JAVA_OPT": f"-Dtls.enable=true -Dtls.test.mode.enable=false -Dtls.config.file={home}/tls.properties",
    }
    out, err = io.StringIO(), io.StringIO()
    status = await run(line, environment, out, err)
    return status, out.getvalue(), err.getvalue()


async def test_mqadmin_of_an_operator(guarded: Guarded) -> None:
    operator = ADMIN if guarded.release == "4.9.7" else USER
    broker = guarded.broker.address
    commands = [
        ("updateTopic", "-b", broker, "-t", "made", "-r", "1", "-w", "1"),
        ("updateSubGroup", "-b", broker, "-g", "made-group"),
        ("sendMessage", "-t", "made", "-p", "by mqadmin", "-k", "a-key"),
        ("topicStatus", "-t", "made"),
        ("brokerStatus", "-b", broker),
        ("clusterList",),
        ("topicList", "-c"),
    ]
    for command in commands:
        status, out, err = await mqadmin(guarded, operator, *command)
        assert (status, err) == (0, ""), (command, out, err)
        if command[0] == "sendMessage":
            message_id = out.splitlines()[1].split()[-1]
    for command in (
        ("queryMsgByKey", "-t", "made", "-k", "a-key"),
        ("queryMsgByUniqueKey", "-t", "made", "-i", message_id),
    ):
        status, out, err = await mqadmin(guarded, operator, *command)
        assert (status, err) == (0, "") and message_id in out, (command, out, err)


async def test_mqadmin_of_others(guarded: Guarded) -> None:
    wrong = replace(ADMIN if guarded.release == "4.9.7" else USER, secret_key="a-wrong-secret")
    line = ("updateTopic", "-b", guarded.broker.address, "-t", "not-made")
    status, _, err = await mqadmin(guarded, wrong, *line)
    assert status == 1 and "ignature" in err and "a-wrong-secret" not in err
    status, _, err = await mqadmin(guarded, None, *line)
    assert status == 1 and _WRONG[guarded.release][2] in err
    if guarded.release == "4.9.7":
        status, _, err = await mqadmin(guarded, USER, *line)
        assert status == 1 and "Need admin permission for request code=17, but accessKey=ordinary-user is not" in err
