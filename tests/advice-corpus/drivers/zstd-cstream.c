// Messages compressed, each by a stream of its own.
#include <stdio.h>
#include <stdlib.h>
#include <zstd.h>

int main(int argc, char** argv) {
  const int messages = argc > 1 ? atoi(argv[1]) : 500;
  char text[4096];
  char compressed[8192];
  for (size_t at = 0; at < sizeof text; at++) text[at] = (char)('a' + at * at % 23);
  size_t done = 0;
  for (int message = 0; message < messages; message++) {
    ZSTD_CStream* stream = ZSTD_createCStream();
    ZSTD_initCStream(stream, 1);
    ZSTD_inBuffer in = {text, sizeof text, 0};
    ZSTD_outBuffer out = {compressed, sizeof compressed, 0};
    if (ZSTD_isError(ZSTD_compressStream(stream, &out, &in)) || ZSTD_endStream(stream, &out) != 0)
      return 1;
    done += out.pos > 0;
    ZSTD_freeCStream(stream);
  }
  printf("%zu messages\n", done);
  return 0;
}
