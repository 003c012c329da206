// The heap profile as a file: text that pprof reads (docs/profile.md), written by raw system calls.
//
// Thread safety: any thread. It takes the sampler's lock for each site anew, so that nobody waits
// for a disk.
#pragma once

#include "os.h"
#include "site.h"
#include "writer.h"

namespace larder {

// In the constructor, once options are read: sets the mean, and takes LARDER_PROFILE down.
void profile_init();
// 0, or an error of errno.h: what the sink refuses; EBUSY in a signal handler that interrupted
// the allocator; ENOSYS where stacks cannot be walked.
int profile_write(TextSink sink, void* context);
// The same, to a descriptor.
int profile_write(int file);
// By a thread that is in the slow path already.
int profile_write_entered(int file);
void profile_complain(const char* path, int error);

// The profile in memory that is not the heap's.
class ProfileText {
 public:
  ProfileText() = default;
  ~ProfileText() {
    if (text_ != nullptr) os::unmap(text_, capacity_);
  }
  ProfileText(const ProfileText&) = delete;
  ProfileText& operator=(const ProfileText&) = delete;
  // 0, or an error of errno.h.
  int gather();
  const char* text() const { return text_ != nullptr ? text_ : ""; }
  size_t length() const { return length_; }

 private:
  static int add(void* context, const char* text, size_t bytes);

  char* text_ = nullptr;
  size_t length_ = 0, capacity_ = 0;
};

// For profiles that are made of other things: a sum, then its parts, then where the code lies.
void profile_put_sum(Writer& out, const Estimate& sum, const char* kind);
void profile_put_part(Writer& out, const Site& site, const Estimate& part);
void profile_put_mappings(Writer& out);
// A sink: `file` is a descriptor's address.
int profile_put_into_file(void* file, const char* text, size_t bytes);

// What has grown since profile_mark(), in the form of gperftools' growth profile.
int profile_write_growth(TextSink sink, void* context);
// Growth counts from now on. 0 or EBUSY.
int profile_mark();

// The 95 % interval of an estimate that is a sum over samples (gamma distribution of Fay and
// Feuer); `deviation` is the largest that one sample brought.
struct Interval {
  double low, high;
};
Interval interval_of(double estimate, double variance, double deviation, double at_least);

}  // namespace larder
