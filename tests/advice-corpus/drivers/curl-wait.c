// A page whose second half comes late: the program turns its loop TURNS times meanwhile, as one
// does that has other work. The server is a thread that allocates nothing.
#include <curl/curl.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static int listener;
static int go[2];
static size_t received;

static void* serve(void* unused) {
  (void)unused;
  char request[4096];
  size_t length = 0;
  const int client = accept(listener, NULL, NULL);
  while (length < 4 || memcmp(request + length - 4, "\r\n\r\n", 4) != 0) {
    const ssize_t got = read(client, request + length, sizeof request - length);
    if (got <= 0) abort();
    length += (size_t)got;
  }
  static const char first[] = "HTTP/1.1 200 OK\r\nContent-Length: 8\r\n\r\nhalf";
  if (write(client, first, sizeof first - 1) < 0) abort();
  char byte;
  if (read(go[0], &byte, 1) != 1) abort();
  if (write(client, "half", 4) < 0) abort();
  close(client);
  return NULL;
}

static size_t count(char* data, size_t size, size_t n, void* context) {
  (void)data;
  (void)context;
  received += size * n;
  return size * n;
}

int main(int argc, char** argv) {
  const int turns = argc > 1 ? atoi(argv[1]) : 10000;
  struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
  socklen_t length = sizeof address;
  listener = socket(AF_INET, SOCK_STREAM, 0);
  if (bind(listener, (struct sockaddr*)&address, length) || listen(listener, 1) || pipe(go))
    return 1;
  getsockname(listener, (struct sockaddr*)&address, &length);
  pthread_t server;
  pthread_create(&server, NULL, serve, NULL);

  char url[64];
  snprintf(url, sizeof url, "http://127.0.0.1:%d/", ntohs(address.sin_port));
  curl_global_init(CURL_GLOBAL_DEFAULT);
  CURLM* multi = curl_multi_init();
  CURL* easy = curl_easy_init();
  curl_easy_setopt(easy, CURLOPT_URL, url);
  curl_easy_setopt(easy, CURLOPT_PROXY, "");
  curl_easy_setopt(easy, CURLOPT_WRITEFUNCTION, count);
  curl_multi_add_handle(multi, easy);
  int running = 0;
  int turn = 0;
  do {
    if (received == 4 && turn++ == turns && write(go[1], "g", 1) != 1) return 1;
    curl_multi_wait(multi, NULL, 0, 0, NULL);
    curl_multi_perform(multi, &running);
  } while (running > 0);
  curl_multi_remove_handle(multi, easy);
  curl_easy_cleanup(easy);
  curl_multi_cleanup(multi);
  pthread_join(server, NULL);
  printf("%zu bytes\n", received);
  return 0;
}
