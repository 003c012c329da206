// Easy and multi handles made and dropped without a transfer.
#include <curl/curl.h>
#include <stdio.h>
#include <stdlib.h>

int main(int argc, char** argv) {
  const int rounds = argc > 1 ? atoi(argv[1]) : 1000;
  curl_global_init(CURL_GLOBAL_DEFAULT);
  for (int round = 0; round < rounds; round++) {
    CURL* easy = curl_easy_init();
    if (easy == NULL) return 1;
    curl_easy_cleanup(easy);
  }
  curl_global_cleanup();
  printf("%d handles\n", rounds);
  return 0;
}
