// A part's test with operations decoded from the fuzzer's bytes (tests/kit/fuzz).
#include "kit.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t size) {
  Choices choices(bytes, size);
  run(choices);
  CHECK(failing::blocks.empty());
  return 0;
}
