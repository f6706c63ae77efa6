"""Each example of mqadmin's help and of ``mqadmin cheat``, run against servers: how it ends, and what it shows.

A row has the example, and below it what is there before, ``^C`` for one that goes on until it is interrupted, ``=``
with the exit status if that is not 0; then words that it prints.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import NamedTuple

import pytest

from eruca.admin.examples import examples
from tests.admin.conftest import Lab
from tests.admin.shop import Operator, elected_cluster, guarded_cluster, plain_cluster
from tests.admin.test_top import begin
from tests.support.eruca import SCRIPTS
from tests.support.terminals import at_a_terminal

ROWS = """
updateTopic -t Orders -c DefaultCluster -r 16 -w 16
  > create topic to 10.0.0.1:10911 success.
updateTopic -t Orders -c DefaultCluster -w 32 -r 32 --keep
  orders > readQueueNums=32, writeQueueNums=32
deleteTopic -t Orders -c DefaultCluster --ask
  orders > delete topic [Orders] from cluster [DefaultCluster] success.
deleteTopic -t Orders -c DefaultCluster --yes
  orders shop member > delete topic [Orders] from cluster [DefaultCluster] success.
updateTopicPerm -t Orders -c DefaultCluster -p 4
  orders > update topic perm from 6 to 4 in 10.0.0.1:10911 success.
updateTopicPerm -t Orders -b 10.0.0.1:10911 -p 6
  orders stopped > update topic perm from 4 to 6 in 10.0.0.1:10911 success.
topicRoute -t Orders -l
  orders > {0=10.0.0.1:10911}
topicRoute -t Orders -o json
  orders > "readQueues": 8
topicStatus -t Orders
  orders > broker-a                          0     0                     3
topicStatus -t Orders -o table --watch 2
  orders ^C > broker-a         0           0           3
topicClusterList -t Orders
  orders > DefaultCluster
topicClusterList -t Orders -o jsonl
  orders > {"topic":"Orders","cluster":"DefaultCluster"}
topicList
  orders > Orders
topicList -c -o csv
  orders shop > Orders,DefaultCluster,"[""shop""]"
allocateMQ -t Orders -i 10.0.0.1@a,10.0.0.2@b
  orders > "10.0.0.2@b":[{"brokerName":"broker-a","queueId":4,"topic":"Orders"}
allocateMQ -t Orders -i a,b,c -o table
  orders > c         broker-a         7
updateOrderConf -t Orders -m put -v "broker-a:8;broker-b:8"
  orders > update orderConf success. topic=[Orders], orderConf=[broker-a:8;broker-b:8]
updateOrderConf -t Orders -m get
  orders order > get orderConf success. topic=[Orders], orderConf=[broker-a:8]
clusterList
  > DefaultCluster    broker-a                0     10.0.0.1:10911
clusterList -o wide --watch 5
  ^C > DefaultCluster  broker-a          0  10.0.0.1:10911
brokerStatus -b 10.0.0.1:10911
  > brokerVersionDesc               : V4_9_7
brokerStatus -c DefaultCluster -o json
  > "brokerVersionDesc": "V4_9_7"
updateBrokerConfig -c DefaultCluster -k fileReservedTime -v 48
  > update broker config success, 10.0.0.1:10911
updateBrokerConfig -b 10.0.0.1:10911 -k brokerPermission -v 4
  > update broker config success, 10.0.0.1:10911
getBrokerConfig -b 10.0.0.1:10911
  > brokerName                                        =  broker-a
getBrokerConfig -c DefaultCluster -o jsonl
  > "brokerName":"broker-a"
cleanExpiredCQ -b 10.0.0.1:10911
  > success
cleanExpiredCQ
  > success
cleanUnusedTopic -c DefaultCluster
  > success
cleanUnusedTopic -b 10.0.0.1:10911
  > success
deleteExpiredCommitLog -c DefaultCluster
  > success
deleteExpiredCommitLog -b 10.0.0.1:10911
  > success
brokerConsumeStats -b 10.0.0.1:10911 -l 1000
  orders many shop > Diff Total: 4103
brokerConsumeStats -b 10.0.0.1:10911 --output csv
  orders shop > Orders,shop,broker-a,0,3,1,2,
producer -b 10.0.0.1:10911
  payers > producer group (payers) instance : clientId=10.0.0.2@p
producer -b 10.0.0.1:10911 -o table
  payers > payers  10.0.0.2@p
haStatus -c DefaultCluster
  > #SlaveNum	1
haStatus -b 10.0.0.1:10911 -o table --watch 2
  ^C > yes                     0
getSyncStateSet -c DefaultCluster
  > #SyncStateSetNums	2
getSyncStateSet -b broker-a -o json
  > "inSync": true
getBrokerEpoch -b broker-a
  > #Epoch: EpochEntry{epoch=2, startOffset=0, endOffset=0}
getBrokerEpoch -c DefaultCluster -o csv
  > DefaultCluster,broker-a,1,10.0.0.1:10911,2,0,0
electMaster -c DefaultCluster -bn broker-a -b 2
  > #MasterEpoch	4
electMaster -c DefaultCluster -bn broker-a -b 2 -o json
  > "masterEpoch": 4
recreateGroup -c DefaultCluster -bn broker-a
  =1 > etcd has the group of these brokers, there is nothing to recreate
recreateGroup -c DefaultCluster -bn broker-a -b 2 --yes
  =1 > etcd has the group of these brokers, there is nothing to recreate
sendMsgStatus -b broker-a -c 10
  > SendResult [sendStatus=SEND_OK
sendMsgStatus -b broker-a -s 4096 -o jsonl
  > {"broker":"broker-a","queueId":0,"status":"SEND_OK"
checkMsgSendRT -t Orders -a 20
  orders > Avg RT:
checkMsgSendRT -t Orders -s 1024 -o csv
  orders > broker-a,7,SEND_OK
clusterRT -i 60
  ^C > DefaultCluster            broker-a
clusterRT -c DefaultCluster -p true -m room-1
  ^C > |room-1|DefaultCluster|broker-a|
exportMetadata -c DefaultCluster -f /tmp/export
  orders shop > export /tmp/export/metadata.json success
exportMetadata -b 10.0.0.1:10911 -t -s
  orders shop > export /tmp/export/topic.json success
exportConfigs -c DefaultCluster
  > export /tmp/export/configs.json success
exportConfigs -c DefaultCluster -f /tmp/export
  > export /tmp/export/configs.json success
exportMetrics -c DefaultCluster
  orders shop > export /tmp/export/metrics.json success
exportMetrics -c DefaultCluster -o json
  orders shop > "topics": 1
startMonitoring --interval 30
  orders shop member ^C > UndoneMsgs [consumerGroup=shop, topic=Orders, undoneMsgsTotal=2
startMonitoring --rounds 1 -o jsonl
  orders shop member > "kind":"undoneMessages"
lag
  orders shop billing > shop                                      0        2
lag shop billing --watch 5
  orders shop billing ^C > shop                                      0        2
check lag -g shop -w 1000 -c 10000
  orders shop > LAG OK - group shop: 2 messages not consumed
check disk -o prometheus
  > mqadmin_check_state{check="disk",subject=""} 0
doctor
  orders shop =1 > group shop: no member is online, and 2 messages wait
doctor shop -o json
  orders shop =1 > "kind": "groupUnused"
console
  ^C > http://127.0.0.1:
console --write --listen 127.0.0.1:8099
  ^C > http://127.0.0.1:
export -o yaml
  orders shop > - name: Orders
export -c DefaultCluster
  orders shop > "name": "Orders"
diff -f cluster.yaml
  orders declared =3 > + topic Wanted at broker-a
diff -f cluster.yaml --prune -o json
  orders declared =3 > "action": "delete"
apply -f cluster.yaml --dry-run
  orders declared =3 > + topic Wanted at broker-a
apply -f cluster.yaml --yes
  orders declared > 1 of 1 changes made
updateSubGroup -g shop -c DefaultCluster -r 3
  > create subscription group to 10.0.0.1:10911 success.
updateSubGroup -g shop -c DefaultCluster -s false --keep
  orders shop > consumeEnable=false
deleteSubGroup -g shop -c DefaultCluster --ask
  orders shop > delete subscription group [shop] from broker [10.0.0.1:10911] in cluster [DefaultCluster] success.
deleteSubGroup -g shop -b 10.0.0.1:10911 -r true
  orders shop > delete subscription group [shop] from broker [10.0.0.1:10911] success.
getConsumerConfig -g shop
  orders shop > groupName                               =  shop
getConsumerConfig -g shop -o table
  orders shop > DefaultCluster  broker-a  shop
consumerConnection -g shop
  orders shop member > 10.0.0.1@a
consumerConnection -g shop -o json
  orders shop member > "clientId": "10.0.0.1@a"
producerConnection -g payers -t Orders
  orders payers > 10.0.0.2@p
producerConnection -g payers -t Orders -o table
  orders payers > 10.0.0.2@p
consumerStatus -g shop -i 10.0.0.1@a -s
  orders shop member > main  TID: 1
consumerStatus -g shop
  orders shop member > Rebalance OK
consumerProgress -g shop
  orders shop > Diff Total: 2
consumerProgress -g shop -s true -o wide --watch 2
  orders shop member ^C > 10.0.0.1
statsAll -a
  orders shop > #Topic
statsAll -t Orders -o json
  orders shop > "known": 2
resetOffsetByTime -g shop -t Orders -s "yesterday 17:30" --dry-run
  orders shop =3 > broker-a     0         0           3           1              0
resetOffsetByTime -g shop -t Orders -s 2026-11-22#17:30:00:000
  orders shop > rollback consumer offset by specified consumerGroup[shop], topic[Orders], force[true]
skipAccumulatedMessage -g shop -t Orders
  orders shop > 0 messages come again, 2 unconsumed ones are skipped
skipAccumulatedMessage -g shop -t Orders --dry-run
  orders shop =3 > broker-a     0         0           3           1              3
resetOffset -g shop -t Orders --to -100
  orders shop > 1 message comes again, 0 unconsumed ones are skipped
resetOffset -g shop --from-file undo.json
  orders shop offsets > 0 messages come again, 1 unconsumed one is skipped
offsets export -g shop
  orders shop > "brokerName": "broker-a"
offsets import --file shop.json --new-group
  orders offsets > group shop, topic Orders, to shop.json
cloneGroupOffset -s shop -d shop-new -t Orders --new-group
  orders shop > clone group offset success. srcGroup[shop], destGroup=[shop-new], topic[Orders]
cloneGroupOffset -s shop -d shop-test -t Orders
  orders shop tests > clone group offset success. srcGroup[shop], destGroup=[shop-test], topic[Orders]
sendMessage -t Orders -p "a text" -k order-17
  orders > SEND_OK
sendMessage -t Orders -p "a text" -b broker-a -i 0
  orders > broker-a                          0     SEND_OK
queryMsgById -i AC11000100002A9F0000000000000000
  orders > OffsetID:            AC11000100002A9F0000000000000000
queryMsgById -i AC11000100002A9F0000000000000000 -g shop -d 10.0.0.1@a
  orders shop member > consumeResult=CR_SUCCESS
queryMsgByKey -t Orders -k order-17
  orders > AC110001000018B4AAC2000000000000
queryMsgByKey -t Orders -k order-17 -o json
  orders > "body": "one"
queryMsgByUniqueKey -t Orders -i AC110001000018B4AAC2000000000000
  orders > Keys:                [order-17]
queryMsgByUniqueKey -t Orders -i AC110001000018B4AAC2000000000000 -a
  orders > Keys:                [order-17]
queryMsgByOffset -t Orders -b broker-a -i 0 -o 4100
  orders many > Queue Offset:        4100
queryMsgByOffset -t Orders -b broker-a -i 0 -o 4100 --output json
  orders many > "queueOffset": 4100
queryCq -t Orders -q 0 -i 0
  orders > idx: 2
queryCq -t Orders -q 0 -i 4100 -c 1 -o json
  orders many > "index": 4100
consumeMessage -t Orders -c 10
  orders > BODY: three
consumeMessage -t Orders -s "yesterday 17:30" -e "yesterday 17:45"
  orders =4 > topic Orders has no message of that time there
printMsg -t Orders -b -30m
  orders > BODY: three
printMsg -t Orders -s "TagA || TagB" -o jsonl
  orders > "tags":"TagA"
tail Orders --from -30m --follow -s 'paid || sent'
  orders ^C > [sent] [] three
tail Orders --from first -o jsonl -c 100
  orders > "queueOffset":2
send Orders --key A17 --tag paid
  orders > 1 message sent to Orders
send OrdersCopy --json --rate 500
  copy > 1 message sent to OrdersCopy
move shop --dry-run
  orders shop letter =3 > 1 dead letter is there
move shop --rate 100
  orders shop letter > 1 dead letter sent to its topic again
printMsgByQueue -t Orders -a broker-a -i 0 -f true
  orders > Tag: paid                           Count: 1
printMsgByQueue -t Orders -a broker-a -i 0 -p true -d true
  orders > BODY: three
queryMsgTraceById -i AC110001000018B4AAC2000000000000
  orders trace > Pub        makers
queryMsgTraceById -i AC110001000018B4AAC2000000000000 -o table
  orders trace > Pub   makers
updateKvConfig -s ORDER_TOPIC_CONFIG -k Orders -v broker-a:8
  > create or update kv config to namespace success.
updateKvConfig -s MY_SPACE -k owner -v team-a
  > create or update kv config to namespace success.
deleteKvConfig -s ORDER_TOPIC_CONFIG -k Orders
  values > delete kv config from namespace success.
deleteKvConfig -s MY_SPACE -k owner -o json
  values > "done": true
getNamesrvConfig
  > productEnvName                                    =  center
getNamesrvConfig -o jsonl
  > "productEnvName":"center"
updateNamesrvConfig -k productEnvName -v prod
  > productEnvName : prod
updateNamesrvConfig -k orderMessageEnable -v true
  > orderMessageEnable : true
wipeWritePerm -b broker-a
  > wipe write perm of broker[broker-a] in name server[10.0.0.1:9876] OK
wipeWritePerm -b broker-a --yes
  orders payers > wipe write perm of broker[broker-a] in name server[10.0.0.1:9876] OK
addWritePerm -b broker-a
  wiped > add write perm of broker[broker-a] in name server[10.0.0.1:9876] OK
addWritePerm -b broker-a -o json
  wiped > "write": true
updateAclConfig -c DefaultCluster -a orders-app -s its-secret-key -t "Orders=PUB|SUB"
  > create or update plain access config to 10.0.0.1:10911 success.
updateAclConfig -b 10.0.0.1:10911 -a operators -s its-secret-key -m true
  > create or update plain access config to 10.0.0.1:10911 success.
deleteAclConfig -c DefaultCluster -a orders-app
  > delete plain access config account from 10.0.0.1:10911 success.
deleteAclConfig -b 10.0.0.1:10911 -a orders-app
  > delete plain access config account from 10.0.0.1:10911 success.
updateGlobalWhiteAddr -c DefaultCluster -g 10.0.0.*,192.168.1.1
  > update global white remote addresses to 10.0.0.1:10911 success.
updateGlobalWhiteAddr -b 10.0.0.1:10911 -g 10.0.0.7
  > update global white remote addresses to 10.0.0.1:10911 success.
clusterAclConfigVersion -c DefaultCluster
  > get cluster's plain access config version success.
clusterAclConfigVersion -b 10.0.0.1:10911 -o json
  > "broker": "broker-a"
context add prod -n "10.0.0.1:9876;10.0.0.2:9876" --ask
  > context prod
context use prod
  context > context prod
schema consumerProgress
  > "title": "GroupProgress"
"""
ADDED = {
    "console": ("--listen 127.0.0.1:0", "its port may be taken"),
    "exportMetadata -b 10.0.0.1:10911 -t -s": ("-f /tmp/export", "its usual folder is one for all of a machine"),
    "exportConfigs -c DefaultCluster": ("-f /tmp/export", "the same"),
    "exportMetrics -c DefaultCluster": ("-f /tmp/export", "the same"),
}
"""What a test must add to an example, and why."""
ELSEWHERE = {
    "top": "needs a terminal: a test below",
    "top -i 10": "the same",
    "completion bash > ~/.local/share/bash-completion/completions/mqadmin": "is for a shell: a test below",
    "getAclConfig -b 10.0.0.1:10911": "only Apache's brokers give out secrets: tests/compat/test_acl.py",
    "getAclConfig -c DefaultCluster -o table": "the same",
}
"""Examples that are no rows, and why."""
GUARDED = {"updateAclConfig", "deleteAclConfig", "updateGlobalWhiteAddr", "clusterAclConfigVersion"}
"""Commands for brokers with access control."""
ELECTED = {"haStatus", "getSyncStateSet", "getBrokerEpoch", "electMaster", "recreateGroup"}
"""Commands for brokers that elect their master."""


class Row(NamedTuple):
    """An example, and what is true of it."""

    line: str
    there: list[str]
    goes_on: bool
    status: int
    shown: str

    @property
    def command(self) -> str:
        return self.line.partition(" ")[0]


def row_of(line: str, below: str) -> Row:
    """What two lines of ROWS say."""
    words, _, shown = below.partition("> ")
    before = words.split()
    goes_on = "^C" in before
    [status] = [int(word[1:]) for word in before if word.startswith("=")] or [130 if goes_on else 0]
    return Row(line, [word for word in before if word[0] not in "=^"], goes_on, status, shown)


_LINES = ROWS.strip().splitlines()
RUN = [row_of(line, below) for line, below in zip(_LINES[::2], _LINES[1::2], strict=True)]


def cluster_of(row: Row, folder: Path) -> AbstractAsyncContextManager[Operator]:
    """The cluster that a command is for."""
    if row.command in GUARDED:
        return guarded_cluster(folder)
    return elected_cluster(folder) if row.command in ELECTED else plain_cluster(folder, *row.there)


def test_each_example_is_run() -> None:
    lines = [row.line for row in RUN]
    assert sorted([*lines, *ELSEWHERE]) == sorted(example.line for example in examples())
    assert ADDED.keys() <= {*lines}


@pytest.mark.parametrize("row", RUN, ids=lambda row: row.line)
async def test_an_example(row: Row, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    async with cluster_of(row, tmp_path) as operator:
        added, _ = ADDED.get(row.line, ("", ""))
        words, shown = shlex.split(operator.here(f"{row.line} {added}")), operator.here(row.shown)
        if row.goes_on:
            done = await operator.watches(words, shown)
        else:
            done = await operator.types(words, b'{"body": "text"}\n' if "--json" in words else b"a line\n")
    for path in re.findall(r"Message Body Path: +(\S+)", done.out):
        os.unlink(path)
    assert done.status == row.status, done
    assert shown in done.out + done.err, done
    assert row.status or f"mqadmin {row.command}:" not in done.err, done


@pytest.mark.processes
@pytest.mark.parametrize("options", [(), ("-i", "10")], ids=["top", "top -i 10"])
async def test_the_screen(lab: Lab, options: tuple[str, ...]) -> None:
    with at_a_terminal() as terminal:
        process = await begin(terminal, lab, *options)
        await terminal.shows("BROKER", "broker-a")
        terminal.type("q")
        assert await process.wait() == 0


@pytest.mark.processes
def test_what_a_shell_makes_of_an_example(tmp_path: Path) -> None:
    """The folder is made first, as the example says."""
    [example] = [each for each in examples("bash") if each.command == "completion"]
    folder = tmp_path / ".local" / "share" / "bash-completion" / "completions"
    environment = {"PATH": f"{SCRIPTS}:{os.environ['PATH']}", "HOME": str(tmp_path)}
    assert "mkdir -p" in example.does
    script = f"mkdir -p {folder} && mqadmin {example.line} && bash -n {folder}/mqadmin"
    done = subprocess.run(["bash", "-c", script], env=environment, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert "mqadmin" in (folder / "mqadmin").read_text()
