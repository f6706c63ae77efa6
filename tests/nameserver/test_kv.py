"""The key-value file: Apache's text, durable, and sound after damage."""

from pathlib import Path

import pytest

from eruca.nameserver.kv import BadKVFile, KVStore


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
