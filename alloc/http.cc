#include "http.h"

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

// A name, a colon, a value. 200, or the status that refuses it.
int take_field(Text line, Request* request) {
  Text name;
  if (!is_printable(line, ' ') || !take_until(line, ":", &name) || name.size == 0 ||
      memchr(name.at, ' ', name.size) != nullptr || memchr(name.at, '\t', name.size) != nullptr)
    return 400;
  Text value = trimmed(line);
  if (name.size == strlen("Authorization") && begins(name, "Authorization")) {
    if (request->bearer.at != nullptr) return 400;
    static constexpr char kBearer[] = "Bearer ";
    size_t length = sizeof kBearer - 1;
    if (begins(value, kBearer)) request->bearer = trimmed({value.at + length, value.size - length});
  }
  bool length = name.size == strlen("Content-Length") && begins(name, "Content-Length");
  bool encoding = name.size == strlen("Transfer-Encoding") && begins(name, "Transfer-Encoding");
  return encoding || (length && !value.is("0")) ? 413 : 200;
}

int take_request_line(Text line, Request* request) {
  Text method, target;
  if (!take_until(line, " ", &method) || !take_until(line, " ", &target)) return 400;
  if (!is_printable(target, '!') || target.size == 0 || target.at[0] != '/') return 400;
  request->chunks = line.is("HTTP/1.1");
  if (!request->chunks && !line.is("HTTP/1.0")) return begins(line, "HTTP/") ? 505 : 400;
  if (!method.is("GET")) return 405;
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
  if (!take_until(rest, "\r\n\r\n", &head)) return size < kMostBytes ? 0 : 431;
  // With the end of its last line.
  head.size += 2;
  Text line;
  if (!take_until(head, "\r\n", &line)) return 400;
  int status = take_request_line(line, request);
  while (status == 200 && take_until(head, "\r\n", &line)) status = take_field(line, request);
  return status == 200 && rest.size != 0 ? 400 : status;
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
    case 431:
      return "Request Header Fields Too Large";
    case 505:
      return "HTTP Version Not Supported";
    default:
      return "Internal Server Error";
  }
}

}  // namespace larder::http
