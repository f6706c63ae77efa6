"""The reset of a consumer group's offsets: look first, decide, act, look again.

`survey` asks all brokers and members and changes nothing; `plan` decides from what was seen, and is pure; `acts` does
what was planned; `confirmation` looks until it is true; `ways_back` keeps the offsets from before; `targets` are the
offsets that one can ask for. `engine` is the way through all of them. `choices` declares the switches of a reset, for
commands and forms; nothing else knows any option. What a person must know goes to the function ``say``.
"""
