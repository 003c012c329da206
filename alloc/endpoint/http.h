// The part of HTTP/1.1 that the endpoint speaks: one GET or POST a connection.
//
// Pure: a request is hostile text, and no more than its bytes is looked at. What is not plainly
// right is refused.
#pragma once

#include "base/base.h"

namespace larder::http {

inline constexpr size_t kMostBytes = 8192;       // of a request, but for its body
inline constexpr size_t kMostBody = 512 * 1024;  // of a POST; a GET has none

struct Text {
  const char* at = nullptr;
  size_t size = 0;
  bool is(const char* text) const;
};

struct Request {
  Text path, query;  // as sent; the query without its question mark
  Text bearer;       // the token of Authorization: Bearer
  Text basic;        // what Authorization: Basic has, as sent
  bool post;
  size_t head_bytes, body_bytes;  // the body comes behind the head
};

// 0: it goes on; 200: its head is whole; else the status to refuse it with.
int parse(const char* text, size_t size, Request* request);
// The value of name=… in the query; its `at` is null if there is none.
Text value_of(Text query, const char* name);
// The password of Authorization: Basic, in `to`; false if there is none that fits.
bool password_of(Text basic, char* to, size_t room);
// In a time that does not tell where they differ.
bool same_secret(Text given, Text secret);
const char* reason(int status);

}  // namespace larder::http
