// The part of HTTP/1.1 that the endpoint speaks: one GET a connection, nothing with a body.
//
// Pure: a request is hostile text, and no more than its bytes is looked at. What is not plainly
// right is refused.
#pragma once

#include "base.h"

namespace larder::http {

inline constexpr size_t kMostBytes = 8192;  // of a request

struct Text {
  const char* at = nullptr;
  size_t size = 0;
  bool is(const char* text) const;
};

struct Request {
  Text path, query;  // as sent; the query without its question mark
  Text bearer;       // the token of Authorization: Bearer
  bool chunks;       // the client knows transfers in chunks: HTTP/1.1
};

// 0: it goes on; 200: it is whole; else the status to refuse it with.
int parse(const char* text, size_t size, Request* request);
// The value of name=… in the query; its `at` is null if there is none.
Text value_of(Text query, const char* name);
// In a time that does not tell where they differ.
bool same_secret(Text given, Text secret);
const char* reason(int status);

}  // namespace larder::http
