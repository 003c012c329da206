#include "core/page_map.h"

namespace larder {

constinit const uintptr_t link_tag = uintptr_t{kLinkTag} << kLinkTagShift;
constinit ProcessPageMap page_map;

}  // namespace larder
