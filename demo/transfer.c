// Fetches URLs at once through curl's multi interface, waits with curl_multi_wait, throws the bytes
// away, and prints how many came and how fast. Exit: 0 all came; 1 one did not; 2 wrong usage.
//
//   transfer URL...
#include <curl/curl.h>
#include <stdio.h>
#include <time.h>

enum { kMostUrls = 16 };

static unsigned long long received;

static size_t discard(char* data, size_t size, size_t count, void* context) {
  (void)data;
  (void)context;
  received += size * count;
  return size * count;
}

static double now(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
}

static int wait_for_all(CURLM* multi) {
  int running = 0;
  do {
    if (curl_multi_perform(multi, &running) != CURLM_OK) return 1;
    if (running > 0 && curl_multi_wait(multi, NULL, 0, 1000, NULL) != CURLM_OK) return 1;
  } while (running > 0);
  int failed = 0;
  int left = 0;
  for (CURLMsg* message; (message = curl_multi_info_read(multi, &left)) != NULL;) {
    if (message->msg != CURLMSG_DONE || message->data.result == CURLE_OK) continue;
    fprintf(stderr, "transfer: %s\n", curl_easy_strerror(message->data.result));
    failed = 1;
  }
  return failed;
}

int main(int argc, char** argv) {
  if (argc < 2 || argc - 1 > kMostUrls) {
    fprintf(stderr, "transfer: 1 to %d URLs are needed\n", kMostUrls);
    return 2;
  }
  CURL* handles[kMostUrls];
  curl_global_init(CURL_GLOBAL_DEFAULT);
  CURLM* multi = curl_multi_init();
  for (int i = 0; i < argc - 1; i++) {
    handles[i] = curl_easy_init();
    curl_easy_setopt(handles[i], CURLOPT_URL, argv[i + 1]);
    curl_easy_setopt(handles[i], CURLOPT_FAILONERROR, 1L);
    curl_easy_setopt(handles[i], CURLOPT_PROXY, "");
    curl_easy_setopt(handles[i], CURLOPT_WRITEFUNCTION, discard);
    curl_multi_add_handle(multi, handles[i]);
  }
  const double begin = now();
  const int failed = wait_for_all(multi);
  const double seconds = now() - begin;
  for (int i = 0; i < argc - 1; i++) {
    curl_multi_remove_handle(multi, handles[i]);
    curl_easy_cleanup(handles[i]);
  }
  curl_multi_cleanup(multi);
  curl_global_cleanup();
  printf("%llu bytes, %.1f MB/s\n", received, (double)received / seconds / 1e6);
  return failed;
}
