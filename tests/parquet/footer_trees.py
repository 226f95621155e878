"""An independent view of footers: Apache Thrift's own compact protocol, with every field kept as it comes."""

from __future__ import annotations

from typing import Any

from thrift.protocol.TCompactProtocol import TCompactProtocol
from thrift.Thrift import TType
from thrift.transport.TTransport import TMemoryBuffer

# A struct is a list of fields, so that the order and unknown ids survive.
Tree = list[tuple[int, int, Any]]

FILE_ROWS, ROW_GROUPS, KEY_VALUES = 3, 4, 5
GROUP_COLUMNS, GROUP_ROWS = 1, 3
POINTERS = {4, 5, 6, 7}


def decode(meta: bytes) -> Tree:
    transport = TMemoryBuffer(meta)
    tree = _read_struct(TCompactProtocol(transport))
    assert not transport.read(1), "bytes follow the struct"
    return tree


def read_first(content: bytes) -> tuple[Tree, int]:
    """The struct that `content` begins with, and how many bytes it has: a page header in front of its page."""
    transport = TMemoryBuffer(content)
    return _read_struct(TCompactProtocol(transport)), transport.cstringio_buf.tell()


def encode(tree: Tree) -> bytes:
    transport = TMemoryBuffer()
    _write(TCompactProtocol(transport), TType.STRUCT, tree)
    written: bytes = transport.getvalue()
    return written


def get(tree: Tree, field_id: int) -> Any:
    return next(value for found, _, value in tree if found == field_id)


def replace(tree: Tree, field_id: int, value: Any) -> Tree:
    return [(found, kind, value if found == field_id else old) for found, kind, old in tree]


def drop(tree: Tree, *field_ids: int) -> Tree:
    return [field for field in tree if field[0] not in field_ids]


def with_chunks(tree: Tree, change: Any) -> Tree:
    """The tree with `change` made to every column chunk."""
    kind, groups = get(tree, ROW_GROUPS)
    return replace(tree, ROW_GROUPS, (kind, [_change_chunks(group, change) for group in groups]))


def everywhere(value: Any, change: Any) -> Any:
    """The tree with `change` made to every struct at every depth, innermost first."""
    if isinstance(value, tuple):
        return (value[0], [everywhere(item, change) for item in value[1]])
    if isinstance(value, list) and (not value or isinstance(value[0], tuple)):
        return change([(field_id, kind, everywhere(child, change)) for field_id, kind, child in value])
    return value


def _change_chunks(group: Tree, change: Any) -> Tree:
    kind, chunks = get(group, GROUP_COLUMNS)
    return replace(group, GROUP_COLUMNS, (kind, [change(chunk) for chunk in chunks]))


def _read_struct(protocol: Any) -> Tree:
    fields: Tree = []
    protocol.readStructBegin()
    while True:
        _, kind, field_id = protocol.readFieldBegin()
        if kind == TType.STOP:
            break
        fields.append((field_id, kind, _read(protocol, kind)))
        protocol.readFieldEnd()
    protocol.readStructEnd()
    return fields


def _read(protocol: Any, kind: int) -> Any:
    if kind == TType.STRUCT:
        return _read_struct(protocol)
    if kind in {TType.LIST, TType.SET}:
        element, count = protocol.readListBegin()
        elements = (element, [_read(protocol, element) for _ in range(count)])
        protocol.readListEnd()
        return elements
    if kind == TType.MAP:
        key, value, count = protocol.readMapBegin()
        items = [(_read(protocol, key), _read(protocol, value)) for _ in range(count)]
        protocol.readMapEnd()
        return {"kinds": (key, value), "items": items}
    return getattr(protocol, _READS[kind])()


def _write(protocol: Any, kind: int, value: Any) -> None:
    if kind == TType.STRUCT:
        _write_struct(protocol, value)
    elif kind in {TType.LIST, TType.SET}:
        element, items = value
        protocol.writeListBegin(element, len(items))
        for item in items:
            _write(protocol, element, item)
        protocol.writeListEnd()
    elif kind == TType.MAP:
        protocol.writeMapBegin(*value["kinds"], len(value["items"]))
        for pair in value["items"]:
            for part_kind, part in zip(value["kinds"], pair, strict=True):
                _write(protocol, part_kind, part)
        protocol.writeMapEnd()
    else:
        getattr(protocol, _READS[kind].replace("read", "write"))(value)


def _write_struct(protocol: Any, fields: Tree) -> None:
    protocol.writeStructBegin("")
    for field_id, kind, value in fields:
        protocol.writeFieldBegin("", kind, field_id)
        _write(protocol, kind, value)
        protocol.writeFieldEnd()
    protocol.writeFieldStop()
    protocol.writeStructEnd()


_READS = {
    TType.BOOL: "readBool",
    TType.BYTE: "readByte",
    TType.I16: "readI16",
    TType.I32: "readI32",
    TType.I64: "readI64",
    TType.DOUBLE: "readDouble",
    TType.STRING: "readBinary",
}
