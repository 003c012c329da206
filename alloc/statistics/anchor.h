// Where another process finds the heap (base/layout.h).
#pragma once

#include "base/layout.h"

extern "C" __attribute__((visibility("default"))) const larder::Anchor larder_anchor;
