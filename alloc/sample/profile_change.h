// How the heap profile changes: since the mark, and from one look to the next.
//
// Thread safety: any thread; a look is its owner's. A look takes 32 bytes a site.
#pragma once

#include "sample/profile.h"

namespace larder {

// What has grown since profile_mark(), in the form of gperftools' growth profile. As profile_write.
int profile_write_growth(TextSink sink, void* context);
// In bytes and objects, none below 0.
Estimate growth_since_mark(const Site& now);

class ProfileLook {
 public:
  ProfileLook() = default;
  ~ProfileLook() { forget(); }
  ProfileLook(const ProfileLook&) = delete;
  ProfileLook& operator=(const ProfileLook&) = delete;

  // 0, or an error of errno.h.
  int take();
  // What is in use more, or less, than then, and what was allocated since. As profile_write.
  int write_change(TextSink sink, void* context) const;
  // Only what is in use more, in the form of the growth profile.
  int write_growth(TextSink sink, void* context) const;
  void forget();

 private:
  struct Then {
    Estimate in_use, allocated;
  };
  Then then(size_t site) const { return site < count_ ? sites_[site] : Then{}; }

  Then* sites_ = nullptr;
  size_t count_ = 0, bytes_ = 0;
};

}  // namespace larder
