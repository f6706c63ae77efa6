"""The fixtures as a user's tests ask for them."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from eruca.client import Message, Producer, PushConsumer, sync
from eruca.client.errors import BadConfig, BadName
from eruca.remoting.listener import PortTaken
from eruca.standalone.background import BackgroundCluster

pytestmark = pytest.mark.processes

PAGE = Path(__file__).resolve().parents[2] / "docs" / "testing.md"


def pytest_of_a_user(folder: Path, asyncio_mode: str = "strict", *, fails: bool = False) -> str:
    """The output of pytest, run in a folder with tests; strict is the mode where nothing is configured."""
    options = ["-q", "-p", "no:cacheprovider", "-o", f"asyncio_mode={asyncio_mode}", "--strict-markers"]
    options += ["--basetemp", str(folder / "temporary")]  # its own: pytest deletes those of earlier runs
    run = subprocess.run(
        [sys.executable, "-m", "pytest", *options, str(folder)],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert run.returncode == fails, run.stdout + run.stderr
    return run.stdout


def test_a_blocking_program(rocketmq: BackgroundCluster, rocketmq_topic: Callable[..., str]) -> None:
    topic = rocketmq_topic(queues=3)
    assert re.fullmatch(r"test_a_blocking_program-\d+", topic)
    with (
        sync.Producer("writers", nameserver=rocketmq.address) as producer,
        sync.PullConsumer("readers", nameserver=rocketmq.address) as reader,
    ):
        assert len(reader.fetch_queues(topic)) == 3
        result = producer.send(Message(topic, b"hello"))
        assert [record.body for record in reader.pull(result.queue, 0).records] == [b"hello"]


async def test_an_asynchronous_program(rocketmq_env: str, rocketmq_topic: Callable[..., str]) -> None:
    topic = rocketmq_topic()
    assert os.environ["ROCKETMQ_NAMESRV_ADDR"] == rocketmq_env
    async with Producer("writers") as producer, PushConsumer("readers").subscribe(topic) as consumer:
        await producer.send(Message(topic, b"hello"))
        async for message in consumer:
            assert message.body == b"hello"
            break


def test_a_topic_comes_by_sending(rocketmq: BackgroundCluster) -> None:
    with sync.Producer("writers", nameserver=rocketmq.address) as producer:
        assert producer.send(Message("NobodyMadeIt", b"hello")).offset == 0


def test_a_cluster_of_ones_own_can_be_restarted(fresh_rocketmq: BackgroundCluster) -> None:
    topic = fresh_rocketmq.create_topic("Orders", queues=1)
    with sync.Producer("writers", nameserver=fresh_rocketmq.address) as producer:
        assert producer.send(Message(topic, b"before")).offset == 0
        fresh_rocketmq.restart_broker()
        assert producer.send(Message(topic, b"after"), timeout=30).offset == 1


def test_it_costs_nothing_until_it_is_asked_for(tmp_path: Path) -> None:
    (tmp_path / "test_mine.py").write_text(
        "import sys\n"
        "def test_without():\n"
        "    assert not [name for name in sys.modules if name.startswith('eruca.broker')]\n"
        "def test_with(rocketmq):\n"
        "    assert rocketmq.address.startswith('127.0.0.1:')\n"
        "def test_that_looks_at_the_terminal(fresh_rocketmq, capfd):\n"
        "    fresh_rocketmq.restart_broker()\n"
        "    assert capfd.readouterr() == ('', '')\n"
    )
    assert "3 passed" in pytest_of_a_user(tmp_path)


@pytest.mark.parametrize("asyncio_mode", ["strict", "auto"])
def test_the_examples_of_the_page(tmp_path: Path, asyncio_mode: str) -> None:
    examples = re.findall(r"^```python\n([\s\S]*?)^```$", PAGE.read_text(), flags=re.MULTILINE)
    assert len(examples) >= 4
    if asyncio_mode == "auto":
        examples = [example for example in examples if "async def test" in example]
    for number, example in enumerate(examples):
        (tmp_path / f"test_example_{number}.py").write_text(example)
    assert f"{len(examples)} passed" in pytest_of_a_user(tmp_path, asyncio_mode)


@pytest.mark.rocketmq({"messageDelayLevel": "1s 2s", "enablePropertyFilter": "false"})
def test_settings_of_one_test(fresh_rocketmq: BackgroundCluster) -> None:
    config = fresh_rocketmq.cluster.broker.config
    assert (config.store.message_delay_level, config.enable_property_filter) == ("1s 2s", False)


@pytest.mark.rocketmq({"fileReservedTime": 5, "enablePropertyFilter": False, "diskMaxUsedSpaceRatio": 80})
def test_settings_that_are_no_texts(fresh_rocketmq: BackgroundCluster) -> None:
    config = fresh_rocketmq.cluster.broker.config
    assert (config.store.file_reserved_time, config.enable_property_filter) == (5, False)


def test_settings_of_another_type_are_told(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text(
        "import pytest\n@pytest.fixture(scope='session')\ndef rocketmq_config():\n    return ['fileReservedTime=5']\n"
    )
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "conftest.py").write_text(
        "import pytest\n@pytest.fixture(scope='session')\ndef rocketmq_config():\n    return {'fileReservedTime': 5}\n"
    )
    (tmp_path / "own" / "test_own.py").write_text(
        "import pytest\n"
        "@pytest.mark.rocketmq({'messageDelayLevel': ['1s', '2s']})\n"
        "def test_a_list(fresh_rocketmq):\n"
        "    pass\n"
        "def test_a_number(rocketmq):\n"
        "    assert rocketmq.cluster.broker.config.store.file_reserved_time == 5\n"
    )
    (tmp_path / "test_mine.py").write_text("def test_no_mapping(fresh_rocketmq):\n    pass\n")
    output = pytest_of_a_user(tmp_path, fails=True)
    assert "1 passed, 2 errors" in output and "Traceback" not in output and "AttributeError" not in output
    assert "messageDelayLevel is of type list: a text, a number, True or False is expected" in output
    assert "The fixture rocketmq_config returns a value of type list: a mapping of keys to values is" in output


def test_the_broker_of_all_tests_evaluates_sql92(rocketmq: BackgroundCluster) -> None:
    assert rocketmq.cluster.broker.config.enable_property_filter


def test_settings_of_a_run(tmp_path: Path) -> None:
    (tmp_path / "pytest.ini").write_text(
        "[pytest]\nrocketmq_settings =\n    messageDelayLevel = 1s 2s\n    brokerName=b\n"
    )
    (tmp_path / "test_mine.py").write_text(
        "import pytest\n"
        "def test_of_the_run(rocketmq):\n"
        "    config = rocketmq.cluster.broker.config\n"
        "    assert (config.store.message_delay_level, config.broker_name) == ('1s 2s', 'b')\n"
        "@pytest.mark.rocketmq({'brokerNam': 'c'})\n"
        "@pytest.mark.xfail(strict=True)\n"
        "def test_wrong(fresh_rocketmq):\n"
        "    pass\n"
    )
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "conftest.py").write_text(
        "import pytest\n@pytest.fixture(scope='session')\ndef rocketmq_config():\n    return {'brokerName': 'own'}\n"
    )
    (tmp_path / "own" / "test_own.py").write_text(
        "def test_own(fresh_rocketmq):\n"
        "    config = fresh_rocketmq.cluster.broker.config\n"
        "    assert (config.store.message_delay_level, config.broker_name) == ('1s 2s', 'own')\n"
    )
    output = pytest_of_a_user(tmp_path)
    assert "2 passed, 1 xfailed" in output


def test_a_marker_that_reaches_no_broker_is_told(tmp_path: Path) -> None:
    (tmp_path / "test_mine.py").write_text(
        "import pytest\n"
        "@pytest.mark.rocketmq({'messageDelayLevel': '1s'})\n"
        "def test_with_the_shared_one(rocketmq_topic):\n"
        "    pass\n"
        "@pytest.mark.rocketmq(messageDelayLevel='1s')\n"
        "def test_with_names(fresh_rocketmq):\n"
        "    pass\n"
        "@pytest.mark.rocketmq({'messageDelayLevel': '1s'})\n"
        "def test_with_both(rocketmq, fresh_rocketmq):\n"
        "    pass\n"
    )
    output = pytest_of_a_user(tmp_path, fails=True)
    assert "1 passed, 2 errors" in output
    assert "The marker rocketmq sets the broker of fresh_rocketmq, and this test uses the one that all te" in output
    assert "The marker takes a mapping: @pytest.mark.rocketmq({" in output


def test_wrong_use(tmp_path: Path) -> None:
    cluster = BackgroundCluster(str(tmp_path))
    assert repr(cluster) == "<BackgroundCluster not running>"
    with pytest.raises(RuntimeError, match="call start"):
        cluster.create_topic("T")
    with cluster:
        assert repr(cluster) == f"<BackgroundCluster {cluster.address}>"
        with pytest.raises(BadName, match="illegal characters"):
            cluster.create_topic("a b")
        with pytest.raises(BadConfig, match="queues=0 is not allowed"):
            cluster.create_topic("T", 0)
        with pytest.raises(RuntimeError, match="running already"):
            cluster.start()
        second = BackgroundCluster(tmp_path / "second", broker_port=cluster.cluster.broker.port)
        with pytest.raises(PortTaken):
            second.start()
        second.stop()
    cluster.stop()
