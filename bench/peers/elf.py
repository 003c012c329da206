"""Points a library that was linked against a newer glibc to the names that an older one has.

Since C23, glibc gives strtol and its family a second name, `__isoc23_strtol`, with the version
GLIBC_2.38. A library that needs nothing else of that version runs on an older glibc once these
references name the older functions; not one instruction changes. The edit relies on two facts:
the older name is the end of the newer one, so that the string table holds it already; and no
reference of an undefined symbol is in a hash table.

ELF64, little endian. Owns nothing; changes the one file it is given.
"""

import struct

NEW_PREFIX, NEW_VERSION, OLD_VERSION = b"__isoc23_", b"GLIBC_2.38", b"GLIBC_2.2.5"
SHT_DYNSYM, SHT_VERNEED, SHT_VERSYM = 11, 0x6FFFFFFE, 0x6FFFFFFF
SHN_UNDEF = 0


class NotRetargetable(Exception):
    """The library needs a symbol of the newer glibc that the older one does not have."""


def elf_hash(name):
    value = 0
    for byte in name:
        value = (value << 4) + byte
        high = value & 0xF0000000
        value = (value ^ high >> 24) & ~high & 0xFFFFFFFF
    return value


class Library:
    """The parts of a shared object with the symbols and versions that it needs."""

    def __init__(self, data):
        self.data = data
        if data[:6] != b"\x7fELF\x02\x01":
            raise NotRetargetable("not a 64-bit little-endian ELF file")
        table, = struct.unpack_from("<Q", data, 0x28)
        entry_size, count = struct.unpack_from("<HH", data, 0x3A)
        self.sections = [struct.unpack_from("<IIQQQQIIQQ", data, table + i * entry_size) for i in range(count)]
        self.symbols = self.section(SHT_DYNSYM)
        self.versions = self.section(SHT_VERSYM)
        self.needs = self.section(SHT_VERNEED)
        self.strings = self.sections[self.symbols[6]][4]

    def section(self, kind):
        for section in self.sections:
            if section[1] == kind:
                return section
        raise NotRetargetable(f"no section of type {kind:#x}")

    def string(self, offset):
        start = self.strings + offset
        return bytes(self.data[start:self.data.index(b"\0", start)])

    def needed_versions(self):
        """Yields (offset of the entry, its index, its name, offset of that name)."""
        need = self.needs[4]
        while True:
            _, count, _, first, following = struct.unpack_from("<HHIII", self.data, need)
            entry = need + first
            for _ in range(count):
                _, _, index, name, step = struct.unpack_from("<IHHII", self.data, entry)
                yield entry, index, self.string(name), name
                entry += step
            if following == 0:
                return
            need += following

    def undefined_symbols(self):
        """Yields (offset of the entry, its version's index, its name, offset of that name)."""
        for i in range(1, self.symbols[5] // 24):
            entry = self.symbols[4] + i * 24
            name, _, _, section = struct.unpack_from("<IBBH", self.data, entry)
            if section == SHN_UNDEF:
                version, = struct.unpack_from("<H", self.data, self.versions[4] + i * 2)
                yield entry, version & 0x7FFF, self.string(name), name


def retarget(path):
    """Edits the library at `path`; does not change one that needs nothing of the newer version."""
    with open(path, "rb") as file:
        library = Library(bytearray(file.read()))
    versions = list(library.needed_versions())
    newer = [(entry, index) for entry, index, name, _ in versions if name == NEW_VERSION]
    older = [offset for _, _, name, offset in versions if name == OLD_VERSION]
    if not newer:
        return
    if not older:
        raise NotRetargetable(f"it refers to nothing of {OLD_VERSION.decode()}")
    for entry, index in newer:
        for symbol, version, name, offset in library.undefined_symbols():
            if version != index:
                continue
            if not name.startswith(NEW_PREFIX):
                raise NotRetargetable(f"it needs {name.decode()} of {NEW_VERSION.decode()}")
            struct.pack_into("<I", library.data, symbol, offset + len(NEW_PREFIX))
        struct.pack_into("<I", library.data, entry, elf_hash(OLD_VERSION))
        struct.pack_into("<I", library.data, entry + 8, older[0])
    with open(path, "wb") as file:
        file.write(library.data)
