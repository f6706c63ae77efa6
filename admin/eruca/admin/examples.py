"""Tasks of operators and the command lines that do them: the examples of help, and ``mqadmin cheat``.

Each line is `command line  # what it does`. A command has two at least.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

_LINES: Final = """
updateTopic -t Orders -c DefaultCluster -r 16 -w 16  # create a topic with 16 queues at every master
updateTopic -t Orders -c DefaultCluster -w 32 -r 32 --keep  # add queues, and change nothing else
deleteTopic -t Orders -c DefaultCluster --ask  # delete a topic, unless somebody uses it
deleteTopic -t Orders -c DefaultCluster --yes  # delete it in a script, without a question
updateTopicPerm -t Orders -c DefaultCluster -p 4  # stop sends to a topic, and let consumers go on
updateTopicPerm -t Orders -b 10.0.0.1:10911 -p 6  # let one broker take sends again
topicRoute -t Orders -l  # which brokers have a topic, with how many queues
topicRoute -t Orders -o json  # the same for a program
topicStatus -t Orders  # first and next offset of each queue
topicStatus -t Orders -o table --watch 2  # see them grow
topicClusterList -t Orders  # in which clusters a topic is
topicClusterList -t Orders -o jsonl  # the same for a program
topicList  # all topics
topicList -c -o csv  # all topics with their groups, for a spreadsheet
allocateMQ -t Orders -i 10.0.0.1@a,10.0.0.2@b  # how two consumers would share a topic
allocateMQ -t Orders -i a,b,c -o table  # the same for three, a queue on each line
updateOrderConf -t Orders -m put -v "broker-a:8;broker-b:8"  # fix the queues of an ordered topic
updateOrderConf -t Orders -m get  # the order configuration of a topic
clusterList  # brokers, versions, load and disk
clusterList -o wide --watch 5  # the same with all figures, again and again
brokerStatus -b 10.0.0.1:10911  # what a broker says of itself
brokerStatus -c DefaultCluster -o json  # the same of all brokers, for a program
updateBrokerConfig -c DefaultCluster -k fileReservedTime -v 48  # keep messages for 48 hours
updateBrokerConfig -b 10.0.0.1:10911 -k brokerPermission -v 4  # let a broker take no more sends
getBrokerConfig -b 10.0.0.1:10911  # the settings of a broker
getBrokerConfig -c DefaultCluster -o jsonl  # the settings of all brokers, to compare them
cleanExpiredCQ -b 10.0.0.1:10911  # remove files of consume queues without messages
cleanExpiredCQ  # the same at all brokers
cleanUnusedTopic -c DefaultCluster  # remove the queues of deleted topics
cleanUnusedTopic -b 10.0.0.1:10911  # the same at one broker
deleteExpiredCommitLog -c DefaultCluster  # remove files of the commit log that are older than the retention
deleteExpiredCommitLog -b 10.0.0.1:10911  # the same at one broker
brokerConsumeStats -b 10.0.0.1:10911 -l 1000  # queues in which a group lags by 1000 messages
brokerConsumeStats -b 10.0.0.1:10911 --output csv  # the lag of all groups of a broker, for a spreadsheet
producer -b 10.0.0.1:10911  # who sends to a broker
producer -b 10.0.0.1:10911 -o table  # the same in columns
haStatus -c DefaultCluster  # how far each slave is behind its master
haStatus -b 10.0.0.1:10911 -o table --watch 2  # the same of one broker, again and again
getSyncStateSet -c DefaultCluster  # which brokers may become masters
getSyncStateSet -b broker-a -o json  # those of one group, for a program
getBrokerEpoch -b broker-a  # which master wrote which part of the logs of a group
getBrokerEpoch -c DefaultCluster -o csv  # the same of all groups, for a spreadsheet
electMaster -c DefaultCluster -bn broker-a -b 2  # let broker 2 be the master of a group
electMaster -c DefaultCluster -bn broker-a -b 2 -o json  # the same for a program
recreateGroup -c DefaultCluster -bn broker-a  # mend a group that etcd has lost, by the broker that has all
recreateGroup -c DefaultCluster -bn broker-a -b 2 --yes  # by broker 2, whatever that loses, without a question
sendMsgStatus -b broker-a -c 10  # how long ten sends to a broker take
sendMsgStatus -b broker-a -s 4096 -o jsonl  # the same with larger messages, for a program
checkMsgSendRT -t Orders -a 20  # how long sends to each queue of a topic take
checkMsgSendRT -t Orders -s 1024 -o csv  # the same with 1 KiB, for a spreadsheet
clusterRT -i 60  # response times of all brokers, each minute
clusterRT -c DefaultCluster -p true -m room-1  # lines for a log
exportMetadata -c DefaultCluster -f /tmp/export  # topics and groups of a cluster as files
exportMetadata -b 10.0.0.1:10911 -t -s  # all topics of a broker, those of retries too
exportConfigs -c DefaultCluster  # the main settings of all brokers in a file
exportConfigs -c DefaultCluster -f /tmp/export  # the same in another folder
exportMetrics -c DefaultCluster  # figures of all brokers in a file
exportMetrics -c DefaultCluster -o json  # the same on the screen
startMonitoring --interval 30  # report lag, members, disks and slaves every half minute
startMonitoring --rounds 1 -o jsonl  # one look, for a program
top  # the cluster on a screen: b brokers, t topics, g groups, m members, q ends
top -i 10  # the same, asked every 10 seconds
lag  # all groups, the largest lag first
lag shop billing --watch 5  # how the lag of two groups changes, and when it will be gone
check lag -g shop -w 1000 -c 10000  # a check for Nagios: exit status 0, 1, 2 or 3
check disk -o prometheus  # a figure for the textfile collector of Prometheus
doctor  # what is wrong in a cluster
doctor shop -o json  # what is wrong with one group, for a program
console  # watch the cluster in a browser of this machine
console --write --listen 127.0.0.1:8099  # change things there, too
export -o yaml  # what a cluster has, as a file for apply
export -c DefaultCluster  # the same of one cluster, as JSON
diff -f cluster.yaml  # what apply would change
diff -f cluster.yaml --prune -o json  # with what it would delete, for a program
apply -f cluster.yaml --dry-run  # the same as diff
apply -f cluster.yaml --yes  # make the cluster so, without a question
updateSubGroup -g shop -c DefaultCluster -r 3  # create a group whose messages are retried 3 times
updateSubGroup -g shop -c DefaultCluster -s false --keep  # stop a group, and change nothing else
deleteSubGroup -g shop -c DefaultCluster --ask  # delete a group, unless it has members
deleteSubGroup -g shop -b 10.0.0.1:10911 -r true  # delete a group and its offsets at one broker
getConsumerConfig -g shop  # the settings of a group at each broker
getConsumerConfig -g shop -o table  # the same in columns
consumerConnection -g shop  # the members of a group and what they subscribe
consumerConnection -g shop -o json  # the same for a program
producerConnection -g payers -t Orders  # the members of a producer group
producerConnection -g payers -t Orders -o table  # the same in columns
consumerStatus -g shop -i 10.0.0.1@a -s  # the state of a member, with its threads
consumerStatus -g shop  # the state of all members, in a file each
consumerProgress -g shop  # offsets and lag of a group
consumerProgress -g shop -s true -o wide --watch 2  # with the member that has each queue, again and again
statsAll -a  # traffic and lag of all topics with messages today
statsAll -t Orders -o json  # of one topic, for a program
resetOffsetByTime -g shop -t Orders -s "yesterday 17:30" --dry-run  # rewind: what a reset would do
resetOffsetByTime -g shop -t Orders -s 2026-11-22#17:30:00:000  # rewind: consume again from a time on
skipAccumulatedMessage -g shop -t Orders  # skip all that was not consumed
skipAccumulatedMessage -g shop -t Orders --dry-run  # how much that is
resetOffset -g shop -t Orders --to -100  # go back by 100 messages in each queue
resetOffset -g shop --from-file undo.json  # take a reset back
offsets export -g shop  # the offsets of a group, as a file
offsets import --file shop.json --new-group  # bring the group to them, in a cluster that does not know it yet
cloneGroupOffset -s shop -d shop-new -t Orders --new-group  # begin a new group where another one is
cloneGroupOffset -s shop -d shop-test -t Orders  # give a known group the offsets of another one
sendMessage -t Orders -p "a text" -k order-17  # send a message with a key
sendMessage -t Orders -p "a text" -b broker-a -i 0  # send it to one queue
queryMsgById -i AC11000100002A9F0000000000000000  # a message by the broker's id
queryMsgById -i AC11000100002A9F0000000000000000 -g shop -d 10.0.0.1@a  # have a member consume it now
queryMsgByKey -t Orders -k order-17  # the messages with a key
queryMsgByKey -t Orders -k order-17 -o json  # the same with bodies, for a program
queryMsgByUniqueKey -t Orders -i AC110001000018B4AAC2000000000000  # a message by the producer's id
queryMsgByUniqueKey -t Orders -i AC110001000018B4AAC2000000000000 -a  # all that have it
queryMsgByOffset -t Orders -b broker-a -i 0 -o 4100  # the message at an offset
queryMsgByOffset -t Orders -b broker-a -i 0 -o 4100 --output json  # the same for a program
queryCq -t Orders -q 0 -i 0  # the first units of a consume queue
queryCq -t Orders -q 0 -i 4100 -c 1 -o json  # one unit, for a program
consumeMessage -t Orders -c 10  # print ten messages of a topic
consumeMessage -t Orders -s "yesterday 17:30" -e "yesterday 17:45"  # those of 15 minutes
printMsg -t Orders -b -30m  # all messages of the last half hour
printMsg -t Orders -s "TagA || TagB" -o jsonl  # those with one of two tags, for a program
tail Orders --from -30m --follow -s 'paid || sent'  # what came in the last half hour with these tags, and what comes
tail Orders --from first -o jsonl -c 100  # the first 100 messages, for a program or for send
send Orders --key A17 --tag paid  # send each line of the standard input as a message
send OrdersCopy --json --rate 500  # send what 'tail -o jsonl' printed, 500 messages a second at most
move shop --dry-run  # how many dead letters of a group are to be sent again
move shop --rate 100  # send them to their topics again, 100 a second
printMsgByQueue -t Orders -a broker-a -i 0 -f true  # count the messages of a queue by tag
printMsgByQueue -t Orders -a broker-a -i 0 -p true -d true  # print them with bodies
queryMsgTraceById -i AC110001000018B4AAC2000000000000  # who sent and who consumed a message
queryMsgTraceById -i AC110001000018B4AAC2000000000000 -o table  # the same in columns
updateKvConfig -s ORDER_TOPIC_CONFIG -k Orders -v broker-a:8  # store a value at the nameservers
updateKvConfig -s MY_SPACE -k owner -v team-a  # of one's own
deleteKvConfig -s ORDER_TOPIC_CONFIG -k Orders  # remove it
deleteKvConfig -s MY_SPACE -k owner -o json  # the same, with a result for a program
getNamesrvConfig  # the settings of the nameservers
getNamesrvConfig -o jsonl  # the same, to compare them
updateNamesrvConfig -k productEnvName -v prod  # name the environment of the nameservers
updateNamesrvConfig -k orderMessageEnable -v true  # switch the order configurations on
wipeWritePerm -b broker-a  # send clients away from a broker that is to be stopped
wipeWritePerm -b broker-a --yes  # the same in a script, without a question
addWritePerm -b broker-a  # and back
addWritePerm -b broker-a -o json  # the same, with the number of topics for a program
updateAclConfig -c DefaultCluster -a orders-app -s its-secret-key -t "Orders=PUB|SUB"  # an account for one topic
updateAclConfig -b 10.0.0.1:10911 -a operators -s its-secret-key -m true  # one that may use all requests
deleteAclConfig -c DefaultCluster -a orders-app  # remove an account everywhere
deleteAclConfig -b 10.0.0.1:10911 -a orders-app  # at one broker
updateGlobalWhiteAddr -c DefaultCluster -g 10.0.0.*,192.168.1.1  # addresses that need no account
updateGlobalWhiteAddr -b 10.0.0.1:10911 -g 10.0.0.7  # one address at one broker
clusterAclConfigVersion -c DefaultCluster  # whether all brokers have the same accounts
clusterAclConfigVersion -b 10.0.0.1:10911 -o json  # the version at one, for a program
getAclConfig -b 10.0.0.1:10911  # the accounts of a broker of Apache's, secrets included; Eruca's gives none
getAclConfig -c DefaultCluster -o table  # those of all masters, in columns
context add prod -n "10.0.0.1:9876;10.0.0.2:9876" --ask  # name a cluster
context use prod  # work with it from now on
schema consumerProgress  # the JSON Schema of a command's result
completion bash > ~/.local/share/bash-completion/completions/mqadmin  # completion in bash; mkdir -p makes the folder
"""


@dataclass(frozen=True, slots=True)
class Example:
    """A command line without the word ``mqadmin``, and what it does."""

    line: str
    does: str

    @property
    def command(self) -> str:
        """The name of the command."""
        return self.line.split(" ", 1)[0]


def examples(word: str = "") -> list[Example]:
    """Those in whose words a word stands, in whatever case."""
    found = [Example(*line.split("  # ", 1)) for line in _LINES.strip().splitlines()]
    return [each for each in found if word.lower() in f"{each.line} {each.does}".lower()]


def examples_of(command: str) -> list[Example]:
    """The examples of one command."""
    return [each for each in examples() if each.command == command]
