#include "sample/symbol.h"

#include <elf.h>
#include <string.h>

#include "base/policy.h"
#include "base/shell_sort.h"
#include "os/mappings.h"

namespace larder {

namespace {

// Reads a file at offsets; nothing beyond its end.
class ElfFile {
 public:
  explicit ElfFile(const char* path) : file_(os::open(path)) {}
  ~ElfFile() {
    if (file_ >= 0) os::close(file_);
  }
  ElfFile(const ElfFile&) = delete;
  ElfFile& operator=(const ElfFile&) = delete;

  bool begin() {
    return file_ >= 0 && read(0, &header_) && memcmp(header_.e_ident, ELFMAG, SELFMAG) == 0 &&
           header_.e_ident[EI_CLASS] == ELFCLASS64 && header_.e_phentsize == sizeof(Elf64_Phdr) &&
           header_.e_phnum <= kMaxElfSegments;
  }

  // The address of this file offset; 0: it is not mapped.
  uint64_t address_at(uint64_t offset) {
    for (unsigned i = 0; i < header_.e_phnum; ++i) {
      Elf64_Phdr segment;
      if (!read(header_.e_phoff + i * sizeof segment, &segment)) return 0;
      if (segment.p_type == PT_LOAD && offset >= segment.p_offset &&
          offset - segment.p_offset < segment.p_filesz)
        return segment.p_vaddr + (offset - segment.p_offset);
    }
    return 0;
  }

  // Calls visit(symbol, table of names) for each function.
  template <typename Visit>
  void for_each_function(Visit visit) {
    Elf64_Shdr table, names;
    if (!find_table(SHT_SYMTAB, &table, &names) && !find_table(SHT_DYNSYM, &table, &names)) return;
    Elf64_Sym batch[128];
    for (uint64_t done = 0; done < table.sh_size;) {
      uint64_t bytes = table.sh_size - done < sizeof batch ? table.sh_size - done : sizeof batch;
      long n = os::read_at(file_, batch, bytes, table.sh_offset + done);
      if (n < long(sizeof batch[0])) return;
      size_t count = size_t(n) / sizeof batch[0];
      for (size_t i = 0; i < count; ++i) {
        unsigned type = ELF64_ST_TYPE(batch[i].st_info);
        if ((type == STT_FUNC || type == STT_GNU_IFUNC) && batch[i].st_shndx != SHN_UNDEF)
          visit(batch[i], names);
      }
      done += count * sizeof batch[0];
    }
  }

  void read_name(uint64_t at, char* name, size_t room) {
    long n = os::read_at(file_, name, room - 1, at);
    name[n > 0 ? size_t(n) : 0] = 0;
    for (char* c = name; *c != 0; ++c)
      if (*c < ' ' || *c > '~') *c = '?';
  }

 private:
  template <typename T>
  bool read(uint64_t offset, T* to) {
    return os::read_at(file_, to, sizeof *to, offset) == long(sizeof *to);
  }

  bool section(uint64_t i, Elf64_Shdr* s) {
    return header_.e_shentsize == sizeof *s && i < header_.e_shnum && i < kMaxElfSections &&
           read(header_.e_shoff + i * sizeof *s, s);
  }

  bool find_table(uint32_t type, Elf64_Shdr* table, Elf64_Shdr* names) {
    for (unsigned i = 0; section(i, table); ++i)
      if (table->sh_type == type && table->sh_size != 0 && table->sh_entsize == sizeof(Elf64_Sym))
        return section(table->sh_link, names) && names->sh_type == SHT_STRTAB;
    return false;
  }

  int file_;
  Elf64_Ehdr header_;
};

// Finds each address's file, and the address in it.
void find_modules(Symbol* symbols, size_t count) {
  Mappings mappings;
  Mapping m = {};
  char last[sizeof m.name] = "";
  int module = -1;
  while (mappings.opened() && mappings.next(&m)) {
    if (m.name[0] != '/') continue;
    if (strcmp(last, m.name) != 0) ++module;
    memcpy(last, m.name, sizeof last);
    for (size_t i = 0; i < count; ++i) {
      Symbol& s = symbols[i];
      // A return address may lie in the next function.
      uintptr_t address = s.address - 1;
      if (address < m.begin || address >= m.end) continue;
      s.module = module;
      s.in_file = address - m.begin + m.offset;
      memcpy(s.module_name, m.name, sizeof s.module_name);
    }
  }
}

// Names the symbols of one file.
void name_in(Symbol* symbols, size_t count) {
  ElfFile file(symbols[0].module_name);
  if (!file.begin()) return;  // replaced, perhaps: only the address in it is known
  for (size_t i = 0; i < count; ++i) symbols[i].in_file = file.address_at(symbols[i].in_file);
  file.for_each_function([&](const Elf64_Sym& function, const Elf64_Shdr& names) {
    if (function.st_name >= names.sh_size || function.st_value == 0) return;
    uint64_t begin = function.st_value;
    size_t low = 0, high = count;
    while (low < high) {
      size_t middle = (low + high) / 2;
      if (symbols[middle].in_file < begin)
        low = middle + 1;
      else
        high = middle;
    }
    uint64_t size = function.st_size != 0 ? function.st_size : 1;
    for (; low < count && symbols[low].in_file - begin < size; ++low) {
      if (symbols[low].function >= begin) continue;
      symbols[low].function = begin;
      symbols[low].name_at = names.sh_offset + function.st_name;
    }
  });
  for (size_t i = 0; i < count; ++i)
    if (symbols[i].name_at != 0)
      file.read_name(symbols[i].name_at, symbols[i].name, sizeof symbols[i].name);
}

}  // namespace

void name_symbols(Symbol* symbols, size_t count) {
  for (size_t i = 0; i < count; ++i) {
    uintptr_t address = symbols[i].address;
    memset(static_cast<void*>(&symbols[i]), 0, sizeof symbols[i]);
    symbols[i].address = address;
    symbols[i].module = -1;
  }
  find_modules(symbols, count);
  for (size_t first = 0, end; first < count; first = end) {
    for (end = first + 1; end < count && symbols[end].module == symbols[first].module;) ++end;
    if (symbols[first].module >= 0) name_in(symbols + first, end - first);
  }
}

size_t name_addresses(Symbol* memory, size_t count) {
  // Sorts the numbers first, because symbols are large.
  auto* addresses = reinterpret_cast<uintptr_t*>(memory);
  shell_sort(addresses, count, [](uintptr_t a, uintptr_t b) { return a < b; });
  size_t distinct = 0;
  for (size_t i = 0; i < count; ++i)
    if (i == 0 || addresses[i] != addresses[i - 1]) addresses[distinct++] = addresses[i];
  for (size_t i = distinct; i-- > 0;) memory[i].address = addresses[i];
  name_symbols(memory, distinct);
  return distinct;
}

}  // namespace larder
