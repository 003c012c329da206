#include "os/options.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <string>

#include "base/size_class.h"

namespace larder {
namespace {

std::string read_with(const char* name, const char* value) {
  setenv(name, value, 1);
  testing::internal::CaptureStderr();
  read_options_from_environment();
  unsetenv(name);
  return testing::internal::GetCapturedStderr();
}

TEST(Options, AGoodValueIsTakenInSilence) {
  EXPECT_EQ(read_with("LARDER_PURGE_DECAY_MS", "250"), "");
  EXPECT_EQ(option(Option::kPurgeDecayMs), 250u);
  set_option(Option::kPurgeDecayMs, 1000);
}

TEST(Options, NonsenseIsReportedInOneLineAndTheDefaultStays) {
  for (const char* text : {"banana", "", "-1", "1e3", "99999999999999999999", "\x1b[31m"}) {
    std::string said = read_with("LARDER_PURGE_DECAY_MS", text);
    EXPECT_NE(said.find("LARDER_PURGE_DECAY_MS="), std::string::npos) << text;
    EXPECT_NE(said.find("using the default, 1000"), std::string::npos) << text;
    EXPECT_EQ(said.find('\n'), said.size() - 1);
    EXPECT_EQ(said.find('\x1b'), std::string::npos);
    EXPECT_EQ(option(Option::kPurgeDecayMs), 1000u);
  }
}

TEST(Options, TheSamplersMeanGoesByTcmallocsNameToo) {
  EXPECT_EQ(read_with("TCMALLOC_SAMPLE_PARAMETER", "1000"), "");
  EXPECT_EQ(option(Option::kProfileBytes), 1000u);
  EXPECT_EQ(read_with("LARDER_SAMPLE_PARAMETER", "2000"), "");
  EXPECT_EQ(option(Option::kProfileBytes), 2000u);
  EXPECT_EQ(read_with("LARDER_PROFILE", "/nowhere"), "");
  EXPECT_NE(read_with("LARDER_SAMPLE_PARAMETERS", "1"), "");
  EXPECT_EQ(read_with("LARDER_PROFILE_BYTES", "0"), "");
  EXPECT_EQ(option(Option::kProfileBytes), 0u);
  set_option(Option::kProfileBytes, 524288);
  for (const char* text : {"512k", "-1", "68719476737", "99999999999999999999"}) {
    std::string said = read_with("TCMALLOC_SAMPLE_PARAMETER", text);
    EXPECT_NE(said.find("TCMALLOC_SAMPLE_PARAMETER="), std::string::npos) << text;
    EXPECT_NE(said.find("from 0 to 68719476736 (bytes)"), std::string::npos) << said;
    EXPECT_EQ(option(Option::kProfileBytes), 524288u);
  }
}

TEST(Options, MinAlignSixteenTakesTheSmallestClassOut) {
  EXPECT_EQ(class_of(8), 0);
  set_option(Option::kMinAlign, 16);
  EXPECT_EQ(class_of(0), 1);
  EXPECT_EQ(class_of(8), 1);
  set_option(Option::kMinAlign, 8);
  EXPECT_EQ(class_of(8), 0);
}

}  // namespace
}  // namespace larder
