"""``mqadmin``: the commands by which operators look at a cluster and change it.

Names, flags, columns and texts are those of Apache's mqadmin 4.9.7; errors are one sentence and end with a status that
is not 0. Reaches nameservers and brokers through the wire alone.
"""
