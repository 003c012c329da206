// fork in the midst of everything: the child checks what it inherits, frees some of it, whoever
// made it, and goes on allocating; the parent waits and checks its own.
#pragma once

namespace torture {

struct Worker;

// By the worker's own thread. A fault in the child is the parent's.
void fork_and_check(Worker& worker);

}  // namespace torture
