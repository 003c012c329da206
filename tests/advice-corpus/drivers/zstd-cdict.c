// Small messages, each compressed with the dictionary of its kind, which is made for it.
#define ZSTD_STATIC_LINKING_ONLY
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zstd.h>

int main(int argc, char** argv) {
  const int messages = argc > 1 ? atoi(argv[1]) : 2000;
  char dictionary[2048];
  for (size_t at = 0; at < sizeof dictionary; at++) dictionary[at] = (char)('a' + at * at % 23);
  ZSTD_CCtx* context = ZSTD_createCCtx();
  size_t bytes = 0;
  for (int message = 0; message < messages; message++) {
    char compressed[1024];
    dictionary[message % sizeof dictionary] ^= 1;
    ZSTD_CDict* prepared = ZSTD_createCDict(dictionary, sizeof dictionary, 1);
    bytes += ZSTD_compress_usingCDict(context, compressed, sizeof compressed, dictionary + 100, 500,
                                      prepared) > 0;
    ZSTD_freeCDict(prepared);
  }
  ZSTD_freeCCtx(context);
  printf("%zu messages\n", bytes);
  return 0;
}
