"""The JSON dialect of fastjson 1.2.69, which RocketMQ 4.9 speaks in every body.

Owns the text format: how it is read (tolerantly) and written (byte for byte as Java
writes it).  Must not know any particular body, files or sockets.

* ``loads(data)``  text -> plain values; map keys are always text.
* ``reader(type)`` -> a function text -> typed value, with fastjson's leniency.
* ``fit(type, value)``  plain value -> typed value, by the same leniency.
* ``dumps(value, style)``  values and structs -> text.
* ``pieces(value)``  the same text, COMPACT, little by little.

Invariant: for any bytes, reading either returns a value or raises ``ProtocolError``.
"""

from eruca.protocol.fastjson.pieces import pieces
from eruca.protocol.fastjson.plain import loads
from eruca.protocol.fastjson.shape import fit, reader
from eruca.protocol.fastjson.writer import Style, double_text, dumps

__all__ = ["Style", "double_text", "dumps", "fit", "loads", "pieces", "reader"]
