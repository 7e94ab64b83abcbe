"""XML parser for untrusted text, with bounded time and memory.

It refuses documents longer than `MAX_CHARACTERS`, more than `MAX_ELEMENTS` elements, nesting deeper
than `MAX_DEPTH`, and every declaration of an entity or of attributes (which could expand a page of
text to gigabytes, or include a local file). A document type may be named; it is never loaded.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from xml.parsers import expat

from tuner.base.errors import InputError, shortened_repr

MAX_CHARACTERS = 1 << 22
MAX_ELEMENTS = 200_000
MAX_DEPTH = 100


@dataclass(frozen=True)
class XmlElement:
    """An XML element; `text_pieces` are its own text, without that of its children."""

    name: str
    attributes: Mapping[str, str]
    line: int
    children: list[XmlElement] = field(default_factory=list)
    text_pieces: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        return f"line {self.line}, element <{self.name[:80]}>"

    def walk(self) -> Iterator[XmlElement]:
        """Yield this element and everything inside it, in document order."""
        waiting = [self]
        while waiting:
            element = waiting.pop()
            yield element
            waiting.extend(reversed(element.children))

    def int_attribute(self, key: str, default: int, maximum: int) -> int:
        """Return an attribute as an integer in [0, maximum].

        Raises InputError naming the element.
        """
        text = self.attributes.get(key, str(default)).strip()
        if not (text.isascii() and text.isdigit() and len(text) < 20 and int(text) <= maximum):
            raise InputError(f"{self}: {key} must be 0 to {maximum}, not {shortened_repr(text)}")
        return int(text)


class _Document:
    """Builds the tree of elements from the events of the parser."""

    def __init__(self) -> None:
        self.top = XmlElement("", {}, 0)
        self.open = [self.top]
        self.elements = 0
        self.parser = expat.ParserCreate()
        self.parser.buffer_text = True
        self.parser.StartElementHandler = self.start
        self.parser.EndElementHandler = self.end
        self.parser.CharacterDataHandler = self.text
        self.parser.EntityDeclHandler = self.entity
        self.parser.SkippedEntityHandler = self.entity
        self.parser.AttlistDeclHandler = self.attributes

    def start(self, name: str, attributes: dict[str, str]) -> None:
        element = XmlElement(name, attributes, self.parser.CurrentLineNumber)
        self.elements += 1
        if self.elements > MAX_ELEMENTS:
            raise InputError(f"{element}: there are more than {MAX_ELEMENTS} elements")
        if len(self.open) > MAX_DEPTH:
            raise InputError(f"{element}: elements are nested more than {MAX_DEPTH} deep")
        self.open[-1].children.append(element)
        self.open.append(element)

    def end(self, _name: str) -> None:
        self.open.pop()

    def text(self, piece: str) -> None:
        self.open[-1].text_pieces.append(piece)

    def entity(self, name: str, *_: object) -> None:
        raise InputError(
            f"line {self.parser.CurrentLineNumber}: the entity {shortened_repr(name)}: XML"
            " with entities of its own is not read"
        )

    def attributes(self, name: str, *_: object) -> None:
        raise InputError(
            f"line {self.parser.CurrentLineNumber}: the document declares attributes of"
            f" {shortened_repr(name)}: XML with declarations of its own is not read"
        )


def parse_xml(text: str) -> XmlElement:
    """Return the root element.

    Raises InputError naming line or element of what is malformed or refused.
    """
    if len(text) > MAX_CHARACTERS:
        raise InputError(f"{len(text)} characters of XML are too many: at most {MAX_CHARACTERS}")
    document = _Document()
    try:
        document.parser.Parse(text.lstrip("\ufeff \t\r\n"), True)
    except expat.ExpatError as reason:
        what = expat.ErrorString(reason.code)
        raise InputError(f"line {reason.lineno}: not XML that can be read: {what}") from None
    except UnicodeEncodeError:
        raise InputError("not XML that can be read: it holds half a character") from None
    return document.top.children[0]
