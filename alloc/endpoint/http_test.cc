#include "endpoint/http.h"

#include <gtest/gtest.h>

#include <random>
#include <string>

namespace larder::http {
namespace {

// In memory of just its size: sanitizers see a byte too far.
int parsed(const std::string& text, Request* request) {
  static std::string copy;
  copy = text;
  copy.shrink_to_fit();
  return parse(copy.data(), copy.size(), request);
}

int status_of(const std::string& text) {
  Request request;
  return parsed(text, &request);
}

TEST(Http, ARequestIsTakenApart) {
  Request request;
  ASSERT_EQ(
      parsed(
          "GET /a/b?token=x&seconds=3 HTTP/1.1\r\nHost: h\r\nauthorization:  bearer  t0 \r\n\r\n",
          &request),
      200);
  EXPECT_TRUE(request.path.is("/a/b"));
  EXPECT_TRUE(value_of(request.query, "token").is("x"));
  EXPECT_TRUE(value_of(request.query, "seconds").is("3"));
  EXPECT_EQ(value_of(request.query, "second").at, nullptr);
  EXPECT_TRUE(request.bearer.is("t0"));
  EXPECT_FALSE(request.post);
  EXPECT_EQ(request.body_bytes, 0u);
  EXPECT_EQ(parsed("GET / HTTP/1.0\r\n\r\n", &request), 200);
}

TEST(Http, APostHasABodyOfASizeThatIsSaid) {
  Request request;
  const std::string head = "POST /pprof/symbol HTTP/1.1\r\nContent-Length: 7\r\n\r\n";
  for (const char* body : {"", "0x1", "0x1+0x2"}) {
    ASSERT_EQ(parsed(head + body, &request), 200);
    EXPECT_TRUE(request.post);
    EXPECT_EQ(request.head_bytes, head.size());
    EXPECT_EQ(request.body_bytes, 7u);
  }
  EXPECT_EQ(parsed(head + "0x1+0x2+", &request), 400);
  auto with = [](const std::string& length) {
    return status_of("POST / HTTP/1.1\r\nContent-Length: " + length + "\r\n\r\n");
  };
  EXPECT_EQ(with(std::to_string(kMostBody)), 200);
  for (const std::string& length :
       {std::to_string(kMostBody + 1), std::string("99999999999999999999999")})
    EXPECT_EQ(with(length), 413) << length;
  for (const char* length : {"", "-1", "0x10", "1 2", "7\r\nContent-Length: 8"})
    EXPECT_EQ(with(length), 400) << length;
  EXPECT_EQ(status_of("POST / HTTP/1.1\r\n\r\n"), 200);  // of nothing
}

TEST(Http, APasswordIsWhatComesBehindTheName) {
  Request request;
  ASSERT_EQ(parsed("GET / HTTP/1.1\r\nAuthorization: Basic bGFyZGVyOnRva2VuLTo=\r\n\r\n", &request),
            200);
  char password[16];
  ASSERT_TRUE(password_of(request.basic, password, sizeof password));
  EXPECT_STREQ(password, "token-:");
  EXPECT_FALSE(password_of(request.basic, password, 7));
  for (const char* bad : {"", "bGFyZGVy", "bGFyZGVyOg==", "b-FyZGVyOnQ=", "\xff\xff\xff\xff"})
    EXPECT_FALSE(password_of({bad, strlen(bad)}, password, sizeof password)) << bad;
}

TEST(Http, EveryBeginningGoesOn) {
  const std::string whole = "GET /metrics HTTP/1.1\r\nHost: a\r\nA: b\r\n\r\n";
  for (size_t n = 0; n < whole.size(); ++n) EXPECT_EQ(status_of(whole.substr(0, n)), 0) << n;
  EXPECT_EQ(status_of(whole), 200);
  EXPECT_EQ(status_of(std::string(kMostBytes, 'a')), 431);
  EXPECT_EQ(status_of("GET / HTTP/1.1\r\nA: " + std::string(kMostBytes, 'a') + "\r\n\r\n"), 431);
}

TEST(Http, WhatIsNotPlainlyRightIsRefused) {
  EXPECT_EQ(status_of("PUT / HTTP/1.1\r\n\r\n"), 405);
  EXPECT_EQ(status_of("get / HTTP/1.1\r\n\r\n"), 405);
  EXPECT_EQ(status_of("GET / HTTP/2.0\r\n\r\n"), 505);
  EXPECT_EQ(status_of("GET / HTTP/1.1 \r\n\r\n"), 505);
  for (const char* bad :
       {"\r\n\r\n", "GET\r\n\r\n", "GET /\r\n\r\n", "GET  / HTTP/1.1\r\n\r\n",
        "GET a HTTP/1.1\r\n\r\n", "GET http://h/ HTTP/1.1\r\n\r\n", "GET /\x01 HTTP/1.1\r\n\r\n",
        "GET / HTTP/1.1\r\nA\r\n\r\n", "GET / HTTP/1.1\r\n A: b\r\n\r\n",
        "GET / HTTP/1.1\r\nA : b\r\n\r\n", "GET / HTTP/1.1\r\n: b\r\n\r\n",
        "GET / HTTP/1.1\r\nA: \x1b\r\n\r\n", "GET / HTTP/1.1\r\n\r\nGET / HTTP/1.1\r\n\r\n",
        "GET / x\r\n\r\n",
        "GET / HTTP/1.1\r\nAuthorization: Bearer a\r\nAuthorization: Bearer b\r\n\r\n"})
    EXPECT_EQ(status_of(bad), 400) << bad;
  EXPECT_EQ(status_of("GET / HTTP/1.1\r\nContent-Length: 5\r\n\r\n"), 413);
  EXPECT_EQ(status_of("GET / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n"), 413);
}

TEST(Http, AnyBytesEndInAStatus) {
  std::mt19937 random(7);
  const std::string whole = "GET /a?b=c&d HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer x\r\n\r\n";
  for (int i = 0; i < 200000; ++i) {
    std::string text = whole;
    for (unsigned n = random() % 6; n != 0; --n) {
      size_t at = random() % text.size();
      if (random() % 2 != 0)
        text[at] = char(random());
      else
        text.erase(at, random() % 4);
      if (text.empty()) text = "x";
    }
    Request request;
    int status = parsed(text, &request);
    EXPECT_TRUE(status == 0 || (status >= 200 && status < 600));
    if (status == 200) value_of(request.query, "d");
  }
}

TEST(Http, SecretsAreTheSameOrNot) {
  auto same = [](const std::string& a, const std::string& b) {
    return same_secret({a.data(), a.size()}, {b.data(), b.size()});
  };
  EXPECT_TRUE(same("abc", "abc"));
  EXPECT_FALSE(same("abd", "abc"));
  EXPECT_FALSE(same("ab", "abc"));
  EXPECT_FALSE(same("abcabc", "abc"));
  EXPECT_FALSE(same("", "abc"));
  EXPECT_FALSE(same("", ""));
  EXPECT_FALSE(same("a", ""));
}

}  // namespace
}  // namespace larder::http
