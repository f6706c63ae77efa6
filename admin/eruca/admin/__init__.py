"""``mqadmin``: the commands with which operators inspect and change a cluster.

Names, flags, columns and texts are those of Apache's mqadmin 4.9.7. An error is one sentence, and the exit status is
then not 0. Talks to nameservers and brokers only over the network.
"""
