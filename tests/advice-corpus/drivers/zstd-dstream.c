// Messages decompressed, each by a stream of its own.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zstd.h>

int main(int argc, char** argv) {
  const int messages = argc > 1 ? atoi(argv[1]) : 1000;
  char text[4096];
  char compressed[8192];
  for (size_t at = 0; at < sizeof text; at++) text[at] = (char)('a' + at * at % 23);
  const size_t size = ZSTD_compress(compressed, sizeof compressed, text, sizeof text, 1);
  size_t bytes = 0;
  for (int message = 0; message < messages; message++) {
    ZSTD_DStream* stream = ZSTD_createDStream();
    ZSTD_initDStream(stream);
    char piece[1000];
    size_t at = 0;
    size_t left = 1;
    while (left != 0) {
      const size_t taken = size - at < 100 ? size - at : 100;
      ZSTD_inBuffer in = {compressed + at, taken, 0};
      ZSTD_outBuffer out = {piece, sizeof piece, 0};
      left = ZSTD_decompressStream(stream, &out, &in);
      if (ZSTD_isError(left)) return 1;
      at += in.pos;
      bytes += out.pos;
    }
    ZSTD_freeDStream(stream);
  }
  printf("%zu bytes\n", bytes);
  return 0;
}
