"""What is wrong in a cluster, and how to mend it.

``doctor`` looks and judges: ``survey`` asks nameservers, brokers and members, side by side, and changes nothing;
``brokers``, ``topics`` and ``groups`` are the rules, pure functions of what was seen; ``findings`` are the results.
Must not know options or print.
"""
