"""The wire format of protocol buffers: the fields of a message as numbers, wire types and values.

A number is a varint; a field begins with the varint `number << 3 | wire type`.

Source: protobuf.dev/programming-guides/encoding
"""

from __future__ import annotations

from collections.abc import Iterator

from tuner.base.errors import InputError

VARINT = 0
FIXED64 = 1
BYTES = 2
FIXED32 = 5
_FIXED_BYTES = {FIXED64: 8, FIXED32: 4}
_MAX_VARINT_BYTES = 10
_UINT64 = (1 << 64) - 1


def decode_varint(data: bytes, at: int) -> tuple[int, int]:
    """Return the unsigned number that begins at an offset, and the offset after it.

    Raises InputError where the data end or the number has more than 64 bits.
    """
    value = 0
    for number, byte in enumerate(data[at : at + _MAX_VARINT_BYTES]):
        value |= (byte & 0x7F) << (7 * number)
        if byte < 0x80:
            return value & _UINT64, at + number + 1
    raise InputError(f"byte {at}: a number is cut off or too long: the file is damaged")


def decode_fields(data: bytes) -> Iterator[tuple[int, int, int | bytes]]:
    """Yield number, wire type and value of each field of a message; raises InputError.

    The value of a varint is an unsigned number, all others are bytes.
    """
    at = 0
    while at < len(data):
        key, at = decode_varint(data, at)
        wire = key & 7
        if wire == VARINT:
            value, at = decode_varint(data, at)
            yield key >> 3, wire, value
            continue
        if wire == BYTES:
            length, at = decode_varint(data, at)
        elif wire in _FIXED_BYTES:
            length = _FIXED_BYTES[wire]
        else:
            raise InputError(f"byte {at}: a field of an unknown kind: the file is damaged")
        if at + length > len(data):
            raise InputError(f"byte {at}: the message ends within a field: the file is cut off")
        yield key >> 3, wire, data[at : at + length]
        at += length


def decode_messages(data: bytes) -> Iterator[bytes]:
    """Yield messages that each follow their length as a varint; raises InputError."""
    at = 0
    while at < len(data):
        length, at = decode_varint(data, at)
        if at + length > len(data):
            raise InputError(f"byte {at}: the file ends within a message: it is cut off")
        yield data[at : at + length]
        at += length


def encode_varint(value: int) -> bytes:
    """Return an unsigned number, or a negative one as its complement of 64 bits."""
    value &= _UINT64
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def encode_number(number: int, value: int) -> bytes:
    """Return a field with a varint."""
    return encode_varint(number << 3 | VARINT) + encode_varint(value)


def encode_bytes(number: int, value: bytes) -> bytes:
    """Return a field with bytes, text or a message."""
    return encode_varint(number << 3 | BYTES) + encode_varint(len(value)) + value
