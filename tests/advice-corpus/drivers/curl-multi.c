// Multi handles made and dropped, as by a program that has one for each of its jobs.
#include <curl/curl.h>
#include <stdio.h>
#include <stdlib.h>

int main(int argc, char** argv) {
  const int rounds = argc > 1 ? atoi(argv[1]) : 20;
  curl_global_init(CURL_GLOBAL_DEFAULT);
  for (int round = 0; round < rounds; round++) {
    CURLM* multi = curl_multi_init();
    if (multi == NULL) return 1;
    curl_multi_cleanup(multi);
  }
  curl_global_cleanup();
  printf("%d handles\n", rounds);
  return 0;
}
