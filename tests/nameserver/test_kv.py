"""The key-value file: Apache's text, durable, and sound after damage."""

import asyncio
import os
from pathlib import Path

import pytest

from eruca.nameserver.app import Nameserver
from eruca.nameserver.kv import LONGEST_CONTENT, LONGEST_VALUE, BadKVFile, KVStore, TooLarge
from eruca.protocol import api
from eruca.protocol.bodies import KVConfig
from eruca.protocol.errors import Refused
from eruca.protocol.headers.routes import KVConfigKey, PutKVConfig
from eruca.remoting import Channels


async def test_values_are_kept_in_apaches_form(tmp_path: Path) -> None:
    path = tmp_path / "namesrv" / "kvConfig.json"
    store = KVStore(path)
    assert store.list("ORDER_TOPIC_CONFIG") is None
    await store.put("ORDER_TOPIC_CONFIG", "topicA", "broker-a:4;broker-b:4")
    assert path.read_text() == '{"configTable":{"ORDER_TOPIC_CONFIG":{"topicA":"broker-a:4;broker-b:4"}}}'
    assert KVStore(path).get("ORDER_TOPIC_CONFIG", "topicA") == "broker-a:4;broker-b:4"


async def test_deleting_the_last_key_leaves_its_namespace(tmp_path: Path) -> None:
    store = KVStore(tmp_path / "kv.json")
    await store.put("n", "k", "v")
    await store.delete("n", "k")
    await store.delete("n", "k")
    await store.delete("other", "k")
    assert store.get("n", "k") is None
    assert store.list("n") == {}
    assert (tmp_path / "kv.json").read_text() == '{"configTable":{"n":{}}}'


async def test_a_damaged_file_is_replaced_by_the_content_before(tmp_path: Path) -> None:
    path = tmp_path / "kv.json"
    store = KVStore(path)
    await store.put("n", "k", "old")
    await store.put("n", "k", "new")
    path.write_text('{"configTable":{"n"')
    again = KVStore(path)
    assert (again.get("n", "k"), again.from_backup) == ("old", True)
    path.unlink()
    assert KVStore(path).get("n", "k") == "old"


def test_a_damaged_file_without_backup_is_said_so(tmp_path: Path) -> None:
    path = tmp_path / "kv.json"
    path.write_text("not json")
    with pytest.raises(BadKVFile, match="move it away"):
        KVStore(path)


async def test_what_cannot_be_written_has_not_happened(tmp_path: Path) -> None:
    store = KVStore(tmp_path / "file" / "kv.json")
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(OSError):
        await store.put("n", "k", "v")
    assert store.get("n", "k") is None


async def test_a_value_has_a_bound(tmp_path: Path) -> None:
    store = KVStore(tmp_path / "kv.json")
    await store.put("n", "k", "x" * LONGEST_VALUE)
    with pytest.raises(TooLarge, match="the value has 1048578 bytes, at most 1048576 are allowed"):
        await store.put("n", "k", "ä" * (LONGEST_VALUE // 2 + 1))
    assert store.get("n", "k") == "x" * LONGEST_VALUE


async def test_all_values_together_have_a_bound(tmp_path: Path) -> None:
    store = KVStore(tmp_path / "kv.json")
    value = "x" * LONGEST_VALUE
    for number in range(7):
        await store.put("n", f"k{number}", value)
    with pytest.raises(
        TooLarge, match=r"all values together would have \d+ bytes, at most 8388608 are allowed; delete"
    ):
        await store.put("n", "k7", value)
    with pytest.raises(TooLarge):
        await store.put("n", "k" * LONGEST_VALUE, "")
    with pytest.raises(TooLarge):
        await store.put("n", "k7", "\1" * (LONGEST_VALUE // 5))  # each takes six bytes
    assert len((tmp_path / "kv.json").read_bytes()) <= LONGEST_CONTENT and store.get("n", "k7") is None
    await store.put("n", "small", "v")
    await store.delete("n", "k0")
    await store.put("n", "k7", value)


async def test_a_larger_file_from_before_stays_usable_and_may_become_smaller(tmp_path: Path) -> None:
    path = tmp_path / "kv.json"
    values = {f"k{number}": "x" * (3 << 20) for number in range(6)}
    path.write_bytes(KVConfig(config_table={"n": values}).encode())
    store = KVStore(path)
    assert store.list("n") == values
    with pytest.raises(TooLarge):
        await store.put("n", "new", "v")
    await store.put("n", "k0", "v")
    await store.delete("n", "k1")
    assert KVStore(path).list("n") == {"k0": "v", **{key: values[key] for key in ("k2", "k3", "k4", "k5")}}


async def test_others_are_served_while_a_value_is_written(nameserver: Nameserver, peer: Channels) -> None:
    """The write goes into a pipe in the place of the new file, and waits until somebody reads from it."""
    file = nameserver.config.kv_file()
    file.parent.mkdir()
    pipe = file.with_name(file.name + ".tmp")
    os.mkfifo(pipe)
    loop, begun = asyncio.get_running_loop(), asyncio.Event()
    end = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    loop.add_reader(end, begun.set)
    other = Channels()
    key = KVConfigKey(namespace="n", key="k")
    first, second = await peer.get(nameserver.address), await other.get(nameserver.address)
    large = PutKVConfig(namespace="n", key="k", value="1" * (1 << 20))
    try:
        writes = [first.start_call(api.PUT_KV_CONFIG, large, timeout=30)]
        await begun.wait()
        writes.append(second.start_call(api.PUT_KV_CONFIG, PutKVConfig(namespace="n", key="k", value="2"), timeout=30))
        with pytest.raises(Refused, match="No config item"):
            await first.call(api.GET_KV_CONFIG, key)
        assert not any(write.done() for write in writes), "a value is on the disk before the answer"
    finally:
        loop.remove_reader(end)
        os.set_blocking(end, True)
        pipe.rename(pipe.with_name("pipe"))
        with os.fdopen(end, "rb") as left:
            await asyncio.to_thread(left.read)
    with pytest.raises(Refused, match="nothing was changed"):  # a pipe cannot be flushed
        await writes[0]
    await writes[1]
    assert (await first.call(api.GET_KV_CONFIG, key)).header.value == "2"
    assert KVStore(file).get("n", "k") == "2"
    await other.close()


async def test_values_are_written_in_the_order_in_which_they_are_asked_for(tmp_path: Path) -> None:
    store = KVStore(tmp_path / "kv.json")
    await asyncio.gather(*(store.put("n", "k", str(number)) for number in range(50)))
    assert store.get("n", "k") == "49"
    assert KVStore(tmp_path / "kv.json").get("n", "k") == "49"
