// Whole sites whose objects are no leaks, nor what can be reached from there: those that ran before
// main, under HEAPCHECK=minimal, and those that a suppression matches.
//
// They are told from others only once something leaks there (Site::exempt), and the check is made
// again. Thread safety: one check at a time.
#pragma once

#include "leak/leak.h"

namespace larder {

// In Larder's constructor: by whom constructors are called.
void leak_exempt_init();
// Marks the sites of the list that are exempt and were not yet. False: there are none.
bool exempt_sites(const LeakList& list, const LeakOptions& options);

}  // namespace larder
