// Pages, compressed on their way out: quickly, each by a call of its own.
#include <brotli/encode.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

int main(int argc, char** argv) {
  const int pages = argc > 1 ? atoi(argv[1]) : 200;
  static uint8_t page[20000], packed[40000];
  int failed = 0;
  for (int number = 0; number < pages; number++) {
    uint32_t random = (uint32_t)number + 1;
    for (size_t at = 0; at < sizeof page; at++) {
      random = random * 1103515245 + 12345;
      page[at] = at % 6 == 5 ? ' ' : "etaoinshrdlu"[at % 6 * 2 + (random >> 16) % 2];
    }
    size_t size = sizeof packed;
    failed += !BrotliEncoderCompress(2, BROTLI_DEFAULT_WINDOW, BROTLI_MODE_TEXT, sizeof page, page,
                                     &size, packed);
    failed += size >= sizeof page;
  }
  printf("%d pages, %d failed\n", pages, failed);
  return failed != 0;
}
