// Cookies set, each over the one before, as a long session with one site does.
#include <curl/curl.h>
#include <stdio.h>
#include <stdlib.h>

int main(int argc, char** argv) {
  const int rounds = argc > 1 ? atoi(argv[1]) : 3000;
  curl_global_init(CURL_GLOBAL_DEFAULT);
  CURL* easy = curl_easy_init();
  for (int round = 0; round < rounds; round++) {
    char line[128];
    snprintf(line, sizeof line, "Set-Cookie: visit=%d; domain=.example.com; path=/", round);
    curl_easy_setopt(easy, CURLOPT_COOKIELIST, line);
  }
  struct curl_slist* cookies = NULL;
  curl_easy_getinfo(easy, CURLINFO_COOKIELIST, &cookies);
  printf("%s\n", cookies ? cookies->data : "none");
  curl_slist_free_all(cookies);
  curl_easy_cleanup(easy);
  curl_global_cleanup();
  return 0;
}
