// Which of 30 cookies go with a request, asked for each of many requests.
#include <stdio.h>
#include <stdlib.h>

#include "cookie.h"
#include "curl_setup.h"
#include "llist.h"
#include "urldata.h"

int main(int argc, char** argv) {
  const int requests = argc > 1 ? atoi(argv[1]) : 300;
  curl_global_init(CURL_GLOBAL_DEFAULT);
  CURL* easy = curl_easy_init();
  for (int number = 0; number < 30; number++) {
    char line[128];
    snprintf(line, sizeof line, "Set-Cookie: name%d=value; domain=.example.com; path=/shop%d/cart",
             number, number);
    curl_easy_setopt(easy, CURLOPT_COOKIELIST, line);
  }
  size_t matched = 0;
  struct Curl_easy* data = easy;
  for (int request = 0; request < requests; request++) {
    char path[64];
    snprintf(path, sizeof path, "/shop%d/cart/item%d", request % 30, request);
    struct Curl_llist found;
    if (Curl_cookie_getlist(data, data->cookies, "www.example.com", path, false, &found) == 0)
      matched += Curl_llist_count(&found);
  }
  curl_easy_cleanup(easy);
  curl_global_cleanup();
  printf("%zu cookies\n", matched);
  return 0;
}
