// Where the endpoint listens, and who may see what it serves: LARDER_LISTEN and LARDER_TOKEN.
//
// Read once, before the endpoint's thread begins; that one listens.
#pragma once

#include "endpoint/http.h"

namespace larder::endpoint_place {

// False: it is nowhere, and that was told.
bool read(const char* where);
// A listening socket, or -1, and that was told.
int listen();
// Whether who asks may have an answer.
bool may_see(const http::Request& request);
// By the one who listens; the name in the file system goes when its process ends.
void remember_socket();
void complain(const char* what, const char* why);

}  // namespace larder::endpoint_place
