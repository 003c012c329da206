#include "leak/leak_profile.h"

#include <errno.h>
#include <limits.h>
#include <string.h>

#include "base/policy.h"
#include "base/writer.h"
#include "os/line.h"
#include "sample/profile.h"

namespace larder {

namespace {

struct Path {
  char text[PATH_MAX];
  size_t length;
};

int put(void* context, const char* text, size_t bytes) {
  auto* path = static_cast<Path*>(context);
  if (bytes >= sizeof path->text - path->length) return ENAMETOOLONG;
  memcpy(path->text + path->length, text, bytes);
  path->text[path->length += bytes] = 0;
  return 0;
}

// A descriptor, or -errno.
int create(Path* path, const char* directory, const char* name, unsigned number) {
  *path = {};
  Writer out(put, path);
  out.put(directory);
  out.put("/");
  out.put(program_invocation_short_name);
  out.put(".");
  out.whole(uint64_t(os::process_id()));
  out.put(".");
  for (; *name != 0; ++name) out.put(*name == '/' ? "_" : name, 1);
  if (number > 1) {
    out.put("-");
    out.whole(number);
  }
  out.put("-end.heap");
  out.flush();
  return out.error() != 0 ? -out.error() : os::create(path->text);
}

void put_pair(Writer& out, const char* name, size_t objects, size_t bytes) {
  out.put(name);
  out.whole(objects);
  out.put(": ");
  out.whole(bytes);
}

}  // namespace

void write_leak_profile(const char* name, const LeakList& list, const LeakOptions& options) {
  if (options.dump_directory[0] == 0) return;
  Path path;
  int file = -EEXIST;
  for (unsigned i = 1; file == -EEXIST && i <= kMaxProfilesOfAName; ++i)
    file = create(&path, options.dump_directory, name, i);
  if (file < 0) return profile_complain(path.text, -file);
  Writer out(profile_put_into_file, &file);
  Estimate total = {double(list.total.objects), double(list.total.bytes)};
  profile_put_sum(out, total, total, " heapprofile\n");
  out.put("# larder 1; leaks; process ");
  out.whole(uint64_t(os::process_id()));
  put_pair(out, "; reachable ", list.reachable.objects, list.reachable.bytes);
  out.put(list.others_unstopped ? "; threads ran\n" : "\n");
  for (size_t i = 0; i < list.sum_count(); ++i) {
    const LeakSum& sum = list.sums()[i];
    Estimate part = {double(sum.objects), double(sum.bytes)};
    profile_put_part(out, *sum.site, part, part);
    put_pair(out, "# indirect ", sum.indirect_objects, sum.indirect_bytes);
    out.put(sum.site->truncated ? "; truncated\n" : "\n");
  }
  profile_put_mappings(out);
  out.flush();
  os::close(file);
  if (out.error() != 0) return profile_complain(path.text, out.error());
  if (!options.for_tool)
    Line().put("the leaks as a heap profile: ").put(path.text, sizeof path.text).write();
}

}  // namespace larder
