"""What commands find and do, as typed results, and the coroutines that gather it.

A module for each subject. Its structs hold figures as figures, times as ``Moment`` and what nobody knows as None, never
as 0. Its coroutines take an ``Admin`` and plain values, and give one struct; peers that did not answer are in its
``errors``. ``printers`` and whatever else shows a cluster reads the same ones. Must not know options or print.
"""
