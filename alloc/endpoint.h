// The heap by HTTP, for whoever may see it: LARDER_LISTEN (docs/endpoint.md).
//
// A thread of its own, only when asked for: it takes no signal, allocates nothing, and has open
// files of its own, so that neither the program nor its children ever see the socket. A child
// of fork has no such thread. It serves one answer at a time; requests are read from up to
// kMostConnections at once, each for kRequestMs at most, and the oldest goes when one more comes.
#pragma once

#include "base.h"

namespace larder {

// In the constructor, last, if LARDER_LISTEN is set: starts the thread, and waits until it listens
// or has said why it cannot.
void endpoint_init();

}  // namespace larder
