// The dictionaries of small messages, each of which is made for one message.
#define ZSTD_STATIC_LINKING_ONLY
#include <stdio.h>
#include <stdlib.h>
#include <zstd.h>

int main(int argc, char** argv) {
  const int messages = argc > 1 ? atoi(argv[1]) : 2000;
  char dictionary[2048];
  for (size_t at = 0; at < sizeof dictionary; at++) dictionary[at] = (char)('a' + at * at % 23);
  int made = 0;
  for (int message = 0; message < messages; message++) {
    dictionary[message % (int)sizeof dictionary] ^= 1;
    ZSTD_CDict* prepared = ZSTD_createCDict(dictionary, sizeof dictionary, 1);
    made += ZSTD_sizeof_CDict(prepared) > sizeof dictionary;
    ZSTD_freeCDict(prepared);
  }
  printf("%d dictionaries\n", made);
  return 0;
}
