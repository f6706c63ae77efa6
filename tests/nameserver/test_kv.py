"""The key-value file: Apache's text, durable, and sound after damage."""

from pathlib import Path

import pytest

from eruca.nameserver.kv import LONGEST_CONTENT, LONGEST_VALUE, BadKVFile, KVStore, TooLarge
from eruca.protocol.bodies import KVConfig


def test_values_are_kept_in_apaches_form(tmp_path: Path) -> None:
    path = tmp_path / "namesrv" / "kvConfig.json"
    store = KVStore(path)
    assert store.list("ORDER_TOPIC_CONFIG") is None
    store.put("ORDER_TOPIC_CONFIG", "topicA", "broker-a:4;broker-b:4")
    assert path.read_text() == '{"configTable":{"ORDER_TOPIC_CONFIG":{"topicA":"broker-a:4;broker-b:4"}}}'
    assert KVStore(path).get("ORDER_TOPIC_CONFIG", "topicA") == "broker-a:4;broker-b:4"


def test_deleting_the_last_key_leaves_its_namespace(tmp_path: Path) -> None:
    store = KVStore(tmp_path / "kv.json")
    store.put("n", "k", "v")
    store.delete("n", "k")
    store.delete("n", "k")
    store.delete("other", "k")
    assert store.get("n", "k") is None
    assert store.list("n") == {}
    assert (tmp_path / "kv.json").read_text() == '{"configTable":{"n":{}}}'


def test_a_damaged_file_is_replaced_by_the_content_before(tmp_path: Path) -> None:
    path = tmp_path / "kv.json"
    store = KVStore(path)
    store.put("n", "k", "old")
    store.put("n", "k", "new")
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


def test_what_cannot_be_written_has_not_happened(tmp_path: Path) -> None:
    store = KVStore(tmp_path / "file" / "kv.json")
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(OSError):
        store.put("n", "k", "v")
    assert store.get("n", "k") is None


def test_a_value_has_a_bound(tmp_path: Path) -> None:
    store = KVStore(tmp_path / "kv.json")
    store.put("n", "k", "x" * LONGEST_VALUE)
    with pytest.raises(TooLarge, match="the value has 1048578 bytes, at most 1048576 are allowed"):
        store.put("n", "k", "ä" * (LONGEST_VALUE // 2 + 1))
    assert store.get("n", "k") == "x" * LONGEST_VALUE


def test_all_values_together_have_a_bound(tmp_path: Path) -> None:
    store = KVStore(tmp_path / "kv.json")
    value = "x" * LONGEST_VALUE
    for number in range(7):
        store.put("n", f"k{number}", value)
    with pytest.raises(
        TooLarge, match=r"all values together would have \d+ bytes, at most 8388608 are allowed; delete"
    ):
        store.put("n", "k7", value)
    with pytest.raises(TooLarge):
        store.put("n", "k" * LONGEST_VALUE, "")
    with pytest.raises(TooLarge):
        store.put("n", "k7", "\1" * (LONGEST_VALUE // 5))  # each takes six bytes
    assert len((tmp_path / "kv.json").read_bytes()) <= LONGEST_CONTENT and store.get("n", "k7") is None
    store.put("n", "small", "v")
    store.delete("n", "k0")
    store.put("n", "k7", value)


def test_a_larger_file_from_before_stays_usable_and_may_become_smaller(tmp_path: Path) -> None:
    path = tmp_path / "kv.json"
    values = {f"k{number}": "x" * (3 << 20) for number in range(6)}
    path.write_bytes(KVConfig(config_table={"n": values}).encode())
    store = KVStore(path)
    assert store.list("n") == values
    with pytest.raises(TooLarge):
        store.put("n", "new", "v")
    store.put("n", "k0", "v")
    store.delete("n", "k1")
    assert KVStore(path).list("n") == {"k0": "v", **{key: values[key] for key in ("k2", "k3", "k4", "k5")}}
