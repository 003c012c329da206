#include "endpoint/http.h"

#include <string.h>
#include <strings.h>

namespace larder::http {

namespace {

// Takes what lies before `end` off the front, and `end` itself. False: there is none.
bool take_until(Text& text, const char* end, Text* part) {
  size_t length = strlen(end);
  for (size_t i = 0; i + length <= text.size; ++i) {
    if (memcmp(text.at + i, end, length) != 0) continue;
    *part = {text.at, i};
    text = {text.at + i + length, text.size - i - length};
    return true;
  }
  return false;
}

bool begins(const Text& text, const char* with) {
  return text.size >= strlen(with) && strncasecmp(text.at, with, strlen(with)) == 0;
}

Text trimmed(Text text) {
  while (text.size != 0 && (*text.at == ' ' || *text.at == '\t'))
    text = {text.at + 1, text.size - 1};
  while (text.size != 0 && (text.at[text.size - 1] == ' ' || text.at[text.size - 1] == '\t'))
    --text.size;
  return text;
}

bool is_printable(const Text& text, char least) {
  for (size_t i = 0; i < text.size; ++i)
    if ((text.at[i] < least && text.at[i] != '\t') || text.at[i] == 127) return false;
  return true;
}

// Of either kind, once.
int take_authorization(Text value, Request* request) {
  static constexpr char kBearer[] = "Bearer ", kBasic[] = "Basic ";
  if (request->bearer.at != nullptr || request->basic.at != nullptr) return 400;
  auto behind = [&](size_t length) { return trimmed({value.at + length, value.size - length}); };
  if (begins(value, kBearer)) request->bearer = behind(sizeof kBearer - 1);
  if (begins(value, kBasic)) request->basic = behind(sizeof kBasic - 1);
  return 200;
}

int take_length(Text value, Request* request) {
  if (request->body_bytes != 0 || value.size == 0) return 400;
  size_t bytes = 0;
  for (size_t i = 0; i < value.size; ++i) {
    if (value.at[i] < '0' || value.at[i] > '9') return 400;
    bytes = bytes * 10 + size_t(value.at[i] - '0');
    if (bytes > (request->post ? kMostBody : 0)) return 413;
  }
  request->body_bytes = bytes;
  return 200;
}

bool is_name(const Text& name, const char* text) {
  return name.size == strlen(text) && begins(name, text);
}

// A name, a colon, a value. 200, or the status that refuses it.
int take_field(Text line, Request* request) {
  Text name;
  if (!is_printable(line, ' ') || !take_until(line, ":", &name) || name.size == 0 ||
      memchr(name.at, ' ', name.size) != nullptr || memchr(name.at, '\t', name.size) != nullptr)
    return 400;
  Text value = trimmed(line);
  if (is_name(name, "Authorization")) return take_authorization(value, request);
  if (is_name(name, "Content-Length")) return take_length(value, request);
  return is_name(name, "Transfer-Encoding") ? 413 : 200;
}

int take_request_line(Text line, Request* request) {
  Text method, target;
  if (!take_until(line, " ", &method) || !take_until(line, " ", &target)) return 400;
  if (!is_printable(target, '!') || target.size == 0 || target.at[0] != '/') return 400;
  if (!line.is("HTTP/1.1") && !line.is("HTTP/1.0")) return begins(line, "HTTP/") ? 505 : 400;
  request->post = method.is("POST");
  if (!request->post && !method.is("GET")) return 405;
  request->path = target;
  Text path;
  if (take_until(target, "?", &path)) {
    request->path = path;
    request->query = target;
  }
  return 200;
}

}  // namespace

bool Text::is(const char* text) const {
  return size == strlen(text) && memcmp(at, text, size) == 0;
}

int parse(const char* text, size_t size, Request* request) {
  *request = {};
  Text rest = {text, size}, head;
  bool whole = take_until(rest, "\r\n\r\n", &head);
  if (size - rest.size >= kMostBytes || (!whole && size >= kMostBytes)) return 431;
  if (!whole) return 0;
  request->head_bytes = size - rest.size;
  // With the end of its last line.
  head.size += 2;
  Text line;
  if (!take_until(head, "\r\n", &line)) return 400;
  int status = take_request_line(line, request);
  while (status == 200 && take_until(head, "\r\n", &line)) status = take_field(line, request);
  return status == 200 && rest.size > request->body_bytes ? 400 : status;
}

Text value_of(Text query, const char* name) {
  while (query.size != 0) {
    Text pair;
    if (!take_until(query, "&", &pair)) {
      pair = query;
      query = {};
    }
    Text key;
    if (take_until(pair, "=", &key) && key.is(name)) return pair;
  }
  return {};
}

bool password_of(Text basic, char* to, size_t room) {
  static constexpr char kDigits[] =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  unsigned bits = 0, have = 0;
  size_t used = 0;
  bool behind_name = false;
  for (size_t i = 0; i < basic.size && basic.at[i] != '='; ++i) {
    const char* digit = basic.at[i] == 0 ? nullptr : strchr(kDigits, basic.at[i]);
    if (digit == nullptr) return false;
    bits = bits << 6 | unsigned(digit - kDigits);
    have += 6;
    if (have < 8) continue;
    have -= 8;
    char c = char(bits >> have);
    if (behind_name) {
      if (used + 1 >= room) return false;
      to[used++] = c;
    }
    behind_name = behind_name || c == ':';
  }
  to[used] = 0;
  return used != 0;
}

bool same_secret(Text given, Text secret) {
  unsigned differs = given.size == secret.size ? 0 : 1;
  for (size_t i = 0; i < given.size; ++i)
    differs |= unsigned(given.at[i] ^ secret.at[secret.size == 0 ? 0 : i % secret.size]);
  return differs == 0 && secret.size != 0;
}

const char* reason(int status) {
  switch (status) {
    case 200:
      return "OK";
    case 400:
      return "Bad Request";
    case 401:
      return "Unauthorized";
    case 404:
      return "Not Found";
    case 405:
      return "Method Not Allowed";
    case 413:
      return "Content Too Large";
    case 503:
      return "Service Unavailable";
    case 431:
      return "Request Header Fields Too Large";
    case 505:
      return "HTTP Version Not Supported";
    default:
      return "Internal Server Error";
  }
}

}  // namespace larder::http
