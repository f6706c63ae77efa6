"""The reset of a consumer group's offsets: look first, decide, act, look again.

`survey` asks all brokers and members and changes nothing; `plan` decides from what was seen, and is pure; `acts` does
what was planned; `confirmation` looks until it is true; `ways_back` keeps the offsets from before; `targets` are the
offsets that one can ask for. `engine` is the way through all of them. None of it knows the options of a command; what a
person must know goes to the function ``say``.
"""
