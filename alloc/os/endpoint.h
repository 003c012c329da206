// liblarder_endpoint.so, where it is loaded beside: the heap by HTTP (LARDER_LISTEN).
#pragma once

// Removes its socket; null without that library.
extern "C" [[gnu::weak, gnu::visibility("default")]] void larder_endpoint_close();
