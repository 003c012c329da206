// Function names by address, from the process's files: .symtab, else .dynsym.
//
// Any thread; allocates nothing by malloc. The files' content is checked: they may have been
// replaced or damaged. Bounds: reads each file that contains an address once.
#pragma once

#include "os/os.h"

namespace larder {

struct Symbol {
  uintptr_t address;      // in the process
  uintptr_t in_file;      // in the file's addresses; 0: in no file
  uintptr_t function;     // its begin, in the file's addresses; 0: unknown
  uint64_t name_at;       // in the file
  int module;             // the same for all symbols of one file; -1: none
  char name[200];         // "": unknown
  char module_name[512];  // its path
};

// Fills in the other fields. REQUIRES: the symbols are sorted by `address`.
void name_symbols(Symbol* symbols, size_t count);
// `memory` holds addresses in any order, and then their symbols, sorted and without duplicates.
// Returns the number of symbols.
size_t name_addresses(Symbol* memory, size_t count);

}  // namespace larder
