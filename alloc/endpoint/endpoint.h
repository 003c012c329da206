// The heap by HTTP, for whoever may see it: LARDER_LISTEN (docs/reference/endpoint.md).
//
// A thread of its own, only when asked for: it takes no signal, allocates nothing, and has open
// files of its own, so that neither the program nor its children ever see the socket. A child
// of fork has no such thread. Up to kMostConnections clients are read from and written to
// as they allow; answers are put together one at a time. A request is read for kRequestMs at most,
// an answer has kAnswerMs to be taken, and when one more client comes the oldest goes.
#pragma once

#include "base/base.h"

namespace larder {

// In the constructor, last, if LARDER_LISTEN is set: starts the thread, and waits until it listens
// or has said why it cannot.
void endpoint_init();

}  // namespace larder
