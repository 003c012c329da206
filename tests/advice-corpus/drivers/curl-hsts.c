// A list of 2,000 hosts that are to be visited by HTTPS alone: ROUNDS times filled and dropped.
#include <stdio.h>
#include <stdlib.h>

#include "curl_setup.h"
#include "hsts.h"
#include "urldata.h"

int main(int argc, char** argv) {
  const int rounds = argc > 1 ? atoi(argv[1]) : 5;
  int known = 0;
  for (int round = 0; round < rounds; round++) {
    struct hsts* list = Curl_hsts_init();
    for (int host = 0; host < 2000; host++) {
      char name[32];
      snprintf(name, sizeof name, "host%d.example", host);
      known += Curl_hsts_parse(list, name, "max-age=31536000") == CURLE_OK;
    }
    Curl_hsts_cleanup(&list);
  }
  printf("%d hosts\n", known);
  return 0;
}
