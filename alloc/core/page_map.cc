#include "core/page_map.h"

namespace larder {

constinit ProcessPageMap page_map;

}  // namespace larder
