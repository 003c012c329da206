// URLs taken apart, one after the other.
#include <curl/curl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int main(int argc, char** argv) {
  const int rounds = argc > 1 ? atoi(argv[1]) : 2000;
  static const char* const urls[] = {"http://www.example.com/", "http://www.example.com/shop/cart",
                                     "http://downloads.example.com/files/latest"};
  curl_global_init(CURL_GLOBAL_DEFAULT);
  size_t taken = 0;
  for (int round = 0; round < rounds; round++) {
    CURLU* url = curl_url();
    if (curl_url_set(url, CURLUPART_URL, urls[round % 3], 0) == CURLUE_OK) taken++;
    curl_url_cleanup(url);
  }
  curl_global_cleanup();
  printf("%zu URLs\n", taken);
  return 0;
}
