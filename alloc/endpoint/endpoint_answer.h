// What the endpoint serves: the answer to a request, gathered in memory that is not the heap's.
//
// By the endpoint's thread. An answer over a time is begun with a look at the profile, and ended
// with another one when that time is over.
#pragma once

#include "endpoint/http.h"
#include "os/mapped_text.h"
#include "sample/profile_change.h"

namespace larder {

struct Answer {
  int status;
  const char* type;        // of what it has
  uint64_t after_seconds;  // finish() then; 0: it is finished
  MappedText body;

  // `body` is the request's.
  void begin(const http::Request& request, http::Text posted);
  void finish();
  // 503 or the like, in one line.
  void refuse(int code, const char* why);
  // Its memory goes back.
  void forget();

 private:
  void write(int (*content)(TextSink, void*));

  ProfileLook look;
  bool only_growth;
};

// name 0xADDRESS for each address of 0x1+0x2…, in lines for pprof; those without a name are left
// out. 0, or an error of errno.h.
int write_names(http::Text addresses, MappedText* out);

}  // namespace larder
