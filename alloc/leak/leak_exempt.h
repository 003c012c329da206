// Sites whose objects, and what these point to, are no leaks: those that ran before main, under
// HEAPCHECK=minimal, and those that a suppression matches.
//
// A site is looked up only once something leaks there. Then it is marked (Site::exempt), and the
// check runs again. Thread safety: one check at a time.
#pragma once

#include "leak/leak.h"

namespace larder {

// In Larder's constructor: records the caller of constructors.
void leak_exempt_init();
// Marks the exempt sites of the list. False: no site was marked.
bool exempt_sites(const LeakList& list, const LeakOptions& options);

}  // namespace larder
