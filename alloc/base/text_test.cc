#include "base/text.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <initializer_list>
#include <string>

#include "os/environment.h"

namespace larder {
namespace {

TEST(Text, DigitsAreThoseOfTheNumber) {
  EXPECT_STREQ(Digits(0).text(), "0");
  EXPECT_STREQ(Digits(UINT64_MAX).text(), "18446744073709551615");
  EXPECT_STREQ(Digits(UINT64_MAX, 16).text(), "ffffffffffffffff");
  EXPECT_STREQ(Digits(42, 10, 4).text(), "0042");
  EXPECT_STREQ(Digits(12345, 10, 4).text(), "12345");
}

TEST(Text, WhatDoesNotFitIsCut) {
  char array[8];
  TextBuffer text(array, sizeof array);
  EXPECT_TRUE(text.put("abc").put_number(4567).fits());
  EXPECT_STREQ(array, "abc4567");
  EXPECT_FALSE(text.put("x").fits());
  EXPECT_STREQ(array, "abc4567");
  EXPECT_FALSE(TextBuffer(array, sizeof array).put("longer than it").put("").fits());
  EXPECT_STREQ(array, "longer ");
}

TEST(Text, APatternHasItsNumberWhereverItSaysSo) {
  char array[32];
  for (auto [pattern, want] : {std::pair{"a.%p.%p", "a.17.17"}, {"%", "%"}, {"%%p%", "%17%"}}) {
    TextBuffer(array, sizeof array).put_pattern(pattern, 17);
    EXPECT_STREQ(array, want);
  }
}

TEST(Environment, LardersNameTakesPrecedenceAndAnEmptyValueIsNotSet) {
  EXPECT_EQ(variable("TEXT_TEST"), nullptr);
  setenv("TEXT_TEST", "other", 1);
  EXPECT_STREQ(variable("TEXT_TEST"), "other");
  EXPECT_EQ(variable("TEXT_TEST", "TCMALLOC_"), nullptr);
  setenv("LARDER_TEXT_TEST", "", 1);
  EXPECT_STREQ(variable("TEXT_TEST"), "other");
  setenv("LARDER_TEXT_TEST", "own", 1);
  EXPECT_STREQ(variable("TEXT_TEST"), "own");
  unsetenv("LARDER_TEXT_TEST");
  unsetenv("TEXT_TEST");
}

TEST(Environment, ANumberIsWithinItsRangeOrNone) {
  int64_t value = 0;
  EXPECT_TRUE(parse_number("-5", -5, 5, &value));
  EXPECT_EQ(value, -5);
  EXPECT_TRUE(parse_number("999999999999999999", 0, INT64_MAX, &value));
  EXPECT_EQ(value, 999999999999999999);
  for (const char* bad : {"", "-", "-6", "6", "0x1", " 1", "1 ", "+1", "--1", "1e1",
                          "9999999999999999999", "99999999999999999999999999"})
    EXPECT_FALSE(parse_number(bad, -5, 5, &value)) << bad;
  EXPECT_FALSE(parse_number("-0", 0, 5, &value));
}

TEST(Environment, ASwitchIsAWordForYesOrNo) {
  for (const char* word : {"1", "t", "Y", "TRUE", "yes", "0", "F", "n", "false", "No"}) {
    bool on = false;
    EXPECT_TRUE(parse_switch(word, &on)) << word;
    EXPECT_EQ(on, std::string("1tYTRUEyes").find(word) != std::string::npos) << word;
  }
  bool on;
  for (const char* bad : {"", "2", "on", "yes ", "tr"}) EXPECT_FALSE(parse_switch(bad, &on)) << bad;
}

TEST(Environment, ARateHasDigitsAndAPointAtMost) {
  double rate = 0;
  EXPECT_TRUE(parse_rate("12.25", &rate));
  EXPECT_EQ(rate, 12.25);
  EXPECT_TRUE(parse_rate(".5", &rate));
  EXPECT_EQ(rate, .5);
  for (const char* bad : {"", ".", "1.2.3", "-1", "1e9", "nan", "inf", "1234567890123"})
    EXPECT_FALSE(parse_rate(bad, &rate)) << bad;
}

}  // namespace
}  // namespace larder
