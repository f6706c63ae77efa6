"""Access control of the two daemons: who asks, and what an account may do (the module acl of 4.9.7).

``Accounts`` are those of the access files: they tell who has signed a request, and from which addresses requests need
no signature. What a request needs, a daemon's guard knows. PyYAML is imported with the first file that is read.
"""

from eruca.remoting.access.account import Account
from eruca.remoting.access.accounts import Accounts
from eruca.remoting.access.permissions import ANY, DENY, PUB, SUB
from eruca.remoting.access.refusals import AccessRefused
from eruca.remoting.access.white_addresses import AddressPattern
from eruca.remoting.access.yaml_nodes import BadAccessFile

__all__ = [
    "ANY",
    "DENY",
    "PUB",
    "SUB",
    "AccessRefused",
    "Account",
    "Accounts",
    "AddressPattern",
    "BadAccessFile",
]
