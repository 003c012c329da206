// A cache of 1,000 alternative services, read from its file as a browser does at each start.
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

// The library's own headers need those before them.
// clang-format off
#include "curl_setup.h"
#include "urldata.h"
#include "altsvc.h"
// clang-format on

int main(int argc, char** argv) {
  const int rounds = argc > 1 ? atoi(argv[1]) : 5;
  char file[] = "/tmp/altsvc-XXXXXX";
  FILE* out = fdopen(mkstemp(file), "w");
  for (int host = 0; host < 1000; host++)
    fprintf(out, "h1 host%d.example 443 h1 other%d.example 8443 \"20991231 23:59:59\" 0 0\n", host,
            host);
  fclose(out);
  size_t known = 0;
  for (int round = 0; round < rounds; round++) {
    struct altsvcinfo* cache = Curl_altsvc_init();
    if (Curl_altsvc_load(cache, file) == CURLE_OK) known += Curl_llist_count(&cache->list);
    Curl_altsvc_cleanup(&cache);
  }
  unlink(file);
  printf("%zu services\n", known);
  return 0;
}
