#include "page_map.h"

namespace larder {

constinit ProcessPageMap page_map;
constinit Slab null_slab;

}  // namespace larder
