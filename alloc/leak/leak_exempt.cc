#include "leak/leak_exempt.h"

#include <unwind.h>

#include "leak/leak_names.h"
#include "leak/suppressions.h"
#include "os/os.h"

namespace larder {

namespace {

// The outermost frame of code that the loader runs.
uintptr_t loader_frame = 0;

uintptr_t function_of(uintptr_t return_address) {
  // A call of a function that never returns may be the last instruction of its caller.
  return uintptr_t(_Unwind_FindEnclosingFunction(reinterpret_cast<void*>(return_address - 1)));
}

// On the first thread the outermost frames are _start, __libc_start_main and then, for main and
// exit, one more function of libc. The program's constructors run below __libc_start_main, those of
// libraries below the loader.
class BeforeMain {
 public:
  BeforeMain() {
    if (os::is_first_thread()) capture(now_, __builtin_return_address(0));
  }
  bool has(const Site& site) const {
    uint32_t depth = site.depth;
    if (now_.truncated || now_.depth < 3 || site.truncated || depth == 0) return false;
    if (site.frames[depth - 1] != now_.frames[now_.depth - 1])
      return site.frames[depth - 1] == loader_frame;
    return depth < 3 ||
           function_of(site.frames[depth - 3]) != function_of(now_.frames[now_.depth - 3]);
  }

 private:
  Stack now_ = {};
};

bool is_suppressed(const LeakSum& sum, const LeakNames& names) {
  for (uint32_t i = 0; i < sum.site->depth && suppressions_count() != 0; ++i) {
    const Symbol* symbol = names.find(sum.site->frames[i]);
    if (symbol == nullptr) continue;
    PlainName plain(*symbol);
    if (suppress({plain.get(), symbol->name, symbol->module_name}, sum.objects, sum.bytes))
      return true;
  }
  return false;
}

}  // namespace

void leak_exempt_init() {
  Stack stack;
  capture(stack, __builtin_return_address(0));
  if (!stack.truncated && stack.depth != 0) loader_frame = stack.frames[stack.depth - 1];
}

bool exempt_sites(const LeakList& list, const LeakOptions& options) {
  bool any = false;
  BeforeMain before_main;
  LeakNames names(list.sums(), suppressions_count() != 0 ? list.sum_count() : 0);
  for (size_t i = 0; i < list.sum_count(); ++i) {
    // The site is the sampler's, which does not read this field.
    auto* site = const_cast<Site*>(list.sums()[i].site);
    bool is_early = !options.before_constructors && before_main.has(*site);
    if (site->exempt || (!is_early && !is_suppressed(list.sums()[i], names))) continue;
    site->exempt = true;
    any = true;
  }
  return any;
}

}  // namespace larder
