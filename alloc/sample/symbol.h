// Names of functions by address, from the files that the process is made of: .symtab, else .dynsym.
//
// Any thread; allocates nothing by malloc. What the files say is checked: they may have been
// replaced, or be damaged. Bounds: each file with an address in it is read once.
#pragma once

#include "os/os.h"

namespace larder {

struct Symbol {
  uintptr_t address;      // to be named
  uintptr_t in_file;      // as the file counts, or 0: in none
  uintptr_t function;     // where it begins, as the file counts; 0: not known
  uint64_t name_at;       // in the file
  int module;             // of several symbols in the same file the same; -1: none
  char name[200];         // "" if not known
  char module_name[512];  // its path
};

// Fills in what follows `address`. REQUIRES: they are in the order of their addresses.
void name_symbols(Symbol* symbols, size_t count);
// Of addresses, which lie in any order where the symbols are to be. Returns how many symbols there
// are: one for each that differs.
size_t name_addresses(Symbol* memory, size_t count);

}  // namespace larder
