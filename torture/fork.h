// fork during all other work: the child checks the inherited blocks, frees some of them, whichever
// thread allocated them, and allocates; the parent waits and checks its own.
#pragma once

namespace torture {

struct Worker;

// Called by the worker's own thread. A fault in the child becomes the parent's.
void fork_and_check(Worker& worker);

}  // namespace torture
