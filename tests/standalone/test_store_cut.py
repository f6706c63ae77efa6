"""`eruca store cut`: a former master, which has more than its slave had, follows it after a cut."""

from __future__ import annotations

from pathlib import Path

from click.testing import CliRunner

from eruca.broker.config import BrokerRole
from eruca.standalone.cli import main
from tests.broker.services.replication.pairs import FILE, caught_up, end, filled, log_bytes, master_of, slave_of
from tests.support.stores import open_store, put

SIZES = f"mappedFileSizeCommitLog={FILE}\nmappedFileSizeConsumeQueue=2000\nmaxHashSlotNum=128\nmaxIndexNum=512\n"


async def test_a_former_master_follows_after_a_cut(tmp_path: Path) -> None:
    conf = tmp_path / "broker.conf"
    conf.write_text(SIZES)
    async with master_of(tmp_path / "a") as former:
        filled(former, 200)
        async with slave_of(tmp_path / "b", former.broker.ha_address) as slave:
            await caught_up(former, slave)
            common = end(slave)
        filled(former, 150, first=200)
        longest = end(former)

    promoted = slave_of(tmp_path / "b", "")
    promoted.config.broker_id, promoted.config.store.broker_role = 0, BrokerRole.ASYNC_MASTER
    async with promoted:
        assert promoted.broker.store.recovery.end_offset == common
        filled(promoted, 30, first=900)
        root = tmp_path / "a" / "store"
        done = CliRunner().invoke(main, ["store", "cut", str(root), str(common), "-c", str(conf)])
        assert done.exit_code == 0, done.output
        kept = root / "rolledback" / f"{common:020d}"
        assert done.output.endswith(
            f"the log ends at {common:,}, before at {longest:,}; what was cut off is in {kept}\n"
        )
        assert sum(file.stat().st_size for file in kept.iterdir()) == longest - common
        async with slave_of(tmp_path / "a", promoted.broker.ha_address) as follower:
            await caught_up(promoted, follower)
            log, copied = log_bytes(promoted), log_bytes(follower)
            assert {name: copied[name] for name in log} == log  # a slave that was empty has the newest files only


def test_what_cannot_be_cut_is_said(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    last = [put(store, "T", 0, b"body") for _ in range(3)][-1]
    cut = ["store", "cut", str(tmp_path)]
    conf = tmp_path / "broker.conf"
    conf.write_text("mappedFileSizeCommitLog=8192\nmappedFileSizeConsumeQueue=400\nmaxHashSlotNum=50\nmaxIndexNum=60\n")
    in_use = CliRunner().invoke(main, [*cut, str(last), "-c", str(conf)])
    assert in_use.exit_code == 1 and "is in use by a broker that runs: stop it" in in_use.output
    end = store.figures().max_offset
    assert store.close() is None

    without = CliRunner().invoke(main, [*cut, str(last)])
    assert without.exit_code == 1
    assert "has 8192 bytes, but mappedFileSizeCommitLog is 1073741824: name the broker.conf" in without.output
    middle = CliRunner().invoke(main, [*cut, str(last + 1), "-c", str(conf)])
    assert middle.exit_code == 1 and f"no record ends at {last + 1}" in middle.output
    nothing = CliRunner().invoke(main, [*cut, str(end), "-c", str(conf)])
    assert (nothing.exit_code, nothing.output) == (0, f"the log ends at {end:,} already\n")
