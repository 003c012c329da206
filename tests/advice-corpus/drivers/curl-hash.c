// Tables of 2,000 keys, as curl keeps of host names and connections: ROUNDS times filled and
// cleaned.
#include <stdio.h>
#include <stdlib.h>

#include "curl_setup.h"
#include "hash.h"

static size_t found;

static void destroy(void* value) { found += *(size_t*)value; }

int main(int argc, char** argv) {
  const int rounds = argc > 1 ? atoi(argv[1]) : 5;
  static size_t one = 1;
  struct curl_hash table;
  Curl_hash_init(&table, 97, Curl_hash_str, Curl_str_key_compare, destroy);
  for (int round = 0; round < rounds; round++) {
    for (int host = 0; host < 2000; host++) {
      char key[32];
      const int length = snprintf(key, sizeof key, "host%d.example:443", host);
      if (Curl_hash_add(&table, key, (size_t)length + 1, &one) == NULL) return 1;
    }
    Curl_hash_clean(&table);
  }
  Curl_hash_destroy(&table);
  printf("%zu values\n", found);
  return 0;
}
