"""Access control of the two daemons: who asks, and what an account may do (the module acl of 4.9.7).

``Accounts`` are those of the access files: they tell who has signed a request, and from which addresses requests need
no signature. What a request needs, a daemon's guard knows. PyYAML is imported with the first file that is read.
"""
