#include "endpoint.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <atomic>

#include "http.h"
#include "line.h"
#include "metrics.h"
#include "os.h"
#include "os_socket.h"
#include "profile.h"

extern "C" [[gnu::weak]] const char* strerrordesc_np(int) noexcept;

namespace larder {

namespace {

constexpr size_t kMostConnections = 16;
constexpr uint64_t kRequestMs = 2000, kStalledMs = 5000;
constexpr size_t kLeastToken = 16;

struct Connection {
  int file = -1;
  uint64_t since_ms = 0;
  size_t used = 0;
  char text[http::kMostBytes];
};

struct Endpoint {
  union {
    sockaddr any;
    sockaddr_un local;
    sockaddr_in four;
    sockaddr_in6 six;
  } address = {};
  socklen_t address_bytes = 0;
  bool is_local = false;
  char token[256] = {};
  int process = 0;  // whose socket in the file system it is
  os::FileId file = {};
  std::atomic<uint32_t> starting{0};
};
constinit Endpoint endpoint;

void complain(const char* what, const char* why) {
  Line().put("LARDER_LISTEN: ").put(what).put(": ").put(why).put("; nothing is served").write();
}

// --- where to listen

// With %p as the process's id.
bool take_path(const char* pattern) {
  sockaddr_un& local = endpoint.address.local;
  local.sun_family = AF_UNIX;
  TextBuffer path(local.sun_path, sizeof local.sun_path);
  path.put_pattern(pattern, unsigned(os::process_id()));
  if (!path.fits()) complain(pattern, "a socket's path has at most 107 characters");
  if (path.length() == 0) complain("unix:", "there is no path");
  endpoint.is_local = true;
  endpoint.address_bytes = sizeof local;
  return path.fits() && path.length() != 0;
}

bool take_token() {
  const char* token = secure_getenv("LARDER_TOKEN");
  size_t length = token == nullptr ? 0 : strlen(token);
  bool fits = length >= kLeastToken && length < sizeof endpoint.token;
  for (size_t i = 0; fits && i < length; ++i) fits = token[i] > ' ' && token[i] < 127;
  if (fits) memcpy(endpoint.token, token, length);
  return fits;
}

// 127.0.0.1:PORT or [::1]:PORT.
bool take_loopback(const char* where) {
  static constexpr char kFour[] = "127.0.0.1:", kSix[] = "[::1]:";
  bool is_four = strncmp(where, kFour, sizeof kFour - 1) == 0;
  if (!is_four && strncmp(where, kSix, sizeof kSix - 1) != 0) {
    complain(where, "it has to be unix:PATH, 127.0.0.1:PORT or [::1]:PORT");
    return false;
  }
  unsigned port = 0;
  const char* digits = where + (is_four ? sizeof kFour : sizeof kSix) - 1;
  const char* at = digits;
  for (; *at >= '0' && *at <= '9' && at - digits < 5; ++at) port = port * 10 + unsigned(*at - '0');
  if (*at != 0 || port == 0 || port > 65535) {
    complain(where, "a port is a number from 1 to 65535");
    return false;
  }
  if (!take_token()) {
    complain(where, "LARDER_TOKEN has to have 16 to 255 characters, without spaces");
    return false;
  }
  if (is_four) {
    endpoint.address.four = {};
    endpoint.address.four.sin_family = AF_INET;
    endpoint.address.four.sin_port = htons(uint16_t(port));
    endpoint.address.four.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    endpoint.address_bytes = sizeof endpoint.address.four;
  } else {
    endpoint.address.six = {};
    endpoint.address.six.sin6_family = AF_INET6;
    endpoint.address.six.sin6_port = htons(uint16_t(port));
    endpoint.address.six.sin6_addr = IN6ADDR_LOOPBACK_INIT;
    endpoint.address_bytes = sizeof endpoint.address.six;
  }
  return true;
}

int listen_there() {
  int socket = os::listen_at(&endpoint.address.any, endpoint.address_bytes);
  if (socket == -EADDRINUSE && endpoint.is_local && os::is_dead_socket(endpoint.address.local)) {
    os::remove(endpoint.address.local.sun_path);
    socket = os::listen_at(&endpoint.address.any, endpoint.address_bytes);
  }
  if (socket >= 0) return socket;
  const char* why = &strerrordesc_np != nullptr ? strerrordesc_np(-socket) : nullptr;
  complain(endpoint.is_local ? endpoint.address.local.sun_path : "the port",
           why != nullptr ? why : "it cannot be listened at");
  return -1;
}

// --- answers

// Gathers what is written, and sends it in chunks if the client knows them.
class Answer {
 public:
  Answer(int file, bool chunks) : file_(file), chunks_(chunks) {}
  void begin(int status, const char* type) {
    char head[400];
    int n = snprintf(
        head, sizeof head,
        "HTTP/1.1 %d %s\r\nContent-Type: %s\r\nCache-Control: no-store\r\n"
        "X-Content-Type-Options: nosniff\r\n%s%s%sConnection: close\r\n\r\n",
        status, http::reason(status), type, status == 401 ? "WWW-Authenticate: Bearer\r\n" : "",
        status == 405 ? "Allow: GET\r\n" : "", chunks_ ? "Transfer-Encoding: chunked\r\n" : "");
    send(head, size_t(n));
  }
  static int put(void* answer, const char* text, size_t size) {
    auto* self = static_cast<Answer*>(answer);
    for (; size != 0 && self->error_ == 0; --size) {
      if (self->used_ == sizeof self->text_) self->flush();
      self->text_[self->used_++] = *text++;
    }
    return self->error_;
  }
  void put(const char* text) { put(this, text, strlen(text)); }
  // A client that misses the last chunk knows that not all has come.
  void end() {
    flush();
    if (chunks_) send("0\r\n\r\n", 5);
  }

 private:
  void flush() {
    if (used_ == 0) return;
    char size[16];
    if (chunks_) send(size, size_t(snprintf(size, sizeof size, "%zx\r\n", used_)));
    send(text_, used_);
    if (chunks_) send("\r\n", 2);
    used_ = 0;
  }
  void send(const char* text, size_t size) {
    while (size != 0 && error_ == 0) {
      long n = os::send(file_, text, size);
      if (n > 0) {
        text += n;
        size -= size_t(n);
        continue;
      }
      pollfd ready = {file_, POLLOUT, 0};
      if (n != -EAGAIN || os::poll(&ready, 1, int(kStalledMs)) <= 0) error_ = EPIPE;
    }
  }

  int file_;
  bool chunks_;
  int error_ = 0;
  size_t used_ = 0;
  char text_[4096];
};

// Arguments with a zero between them.
int write_command_line(Answer& answer) {
  int file = os::open("/proc/self/cmdline");
  if (file < 0) return -file;
  char text[1024];
  for (long n; (n = os::read(file, text, sizeof text)) > 0;) Answer::put(&answer, text, size_t(n));
  os::close(file);
  return 0;
}

constexpr char kPlain[] = "text/plain; charset=utf-8";

enum class Content : uint8_t { kHeap, kGrowth, kCommandLine, kSymbol, kMetrics };

// Without pointers, which would have to be relocated in every process.
struct Route {
  char path[24];
  Content content;
};

constexpr Route kRoutes[] = {
    {"/debug/pprof/heap", Content::kHeap},
    {"/debug/pprof/allocs", Content::kHeap},
    {"/debug/pprof/lifetimes", Content::kHeap},
    {"/debug/pprof/growth", Content::kGrowth},
    {"/debug/pprof/cmdline", Content::kCommandLine},
    {"/debug/pprof/symbol", Content::kSymbol},
    {"/pprof/heap", Content::kHeap},
    {"/pprof/growth", Content::kGrowth},
    {"/pprof/cmdline", Content::kCommandLine},
    {"/pprof/symbol", Content::kSymbol},
    {"/metrics", Content::kMetrics},
};

// 0, or an error of errno.h.
int write_content(Content content, Answer& answer) {
  switch (content) {
    case Content::kHeap:
      return profile_write(Answer::put, &answer);
    case Content::kGrowth:
      return profile_write_growth(Answer::put, &answer);
    case Content::kMetrics:
      return metrics_write(Answer::put, &answer);
    case Content::kCommandLine:
      return write_command_line(answer);
    case Content::kSymbol:
      // There is no symbol table here: pprof reads those of the files.
      answer.put("num_symbols: 0\n");
      return 0;
  }
  return 0;
}

bool is_allowed(const http::Request& request) {
  if (endpoint.is_local) return true;
  http::Text secret = {endpoint.token, strlen(endpoint.token)};
  http::Text given = request.bearer;
  if (given.at == nullptr) given = http::value_of(request.query, "token");
  return http::same_secret(given, secret);
}

void refuse(Answer& answer, int status, const char* why) {
  answer.begin(status, kPlain);
  answer.put(why);
  answer.end();
}

void serve(int file, int status, const http::Request& request) {
  Answer answer(file, request.chunks);
  if (status != 200) return refuse(answer, status, "the request is not understood: GET PATH\n");
  if (!is_allowed(request))
    return refuse(answer, 401, "the token is LARDER_TOKEN's: Authorization: Bearer, or ?token=\n");
  if (http::value_of(request.query, "seconds").at != nullptr)
    return refuse(answer, 400, "seconds= is not known: take two, and pprof -base\n");
  for (const Route& route : kRoutes) {
    if (!request.path.is(route.path)) continue;
    bool metrics = route.content == Content::kMetrics;
    answer.begin(200, metrics ? "text/plain; version=0.0.4; charset=utf-8" : kPlain);
    if (write_content(route.content, answer) == 0) answer.end();
    return;
  }
  answer.begin(request.path.is("/") ? 200 : 404, kPlain);
  for (const Route& route : kRoutes) {
    answer.put(route.path);
    answer.put("\n");
  }
  answer.end();
}

// --- the thread

void close_connection(Connection& c) {
  os::close(c.file);
  c.file = -1;
}

// What the client still sends, unread, would reset the connection before it has read the answer.
void drop_rest(int file) {
  char rest[1024];
  for (int i = 0; i < 64 && os::receive(file, rest, sizeof rest) > 0; ++i) {
  }
}

void go_on(Connection& c) {
  long n = os::receive(c.file, c.text + c.used, sizeof c.text - c.used);
  if (n == -EAGAIN || n == -EINTR) return;
  if (n <= 0) return close_connection(c);
  c.used += size_t(n);
  http::Request request;
  int status = http::parse(c.text, c.used, &request);
  if (status == 0) return;
  serve(c.file, status, request);
  drop_rest(c.file);
  close_connection(c);
}

// The place that is free, or that of the one that has waited longest.
Connection& place_for_one(Connection* all) {
  Connection* place = all;
  for (size_t i = 0; i < kMostConnections; ++i) {
    if (all[i].file < 0) return all[i];
    if (all[i].since_ms < place->since_ms) place = &all[i];
  }
  close_connection(*place);
  return *place;
}

[[noreturn]] void serve_all(int socket, Connection* all) {
  for (;;) {
    pollfd files[kMostConnections + 1] = {{socket, POLLIN, 0}};
    for (size_t i = 0; i < kMostConnections; ++i) files[i + 1] = {all[i].file, POLLIN, 0};
    int ready = os::poll(files, kMostConnections + 1, 500);
    uint64_t now = os::now_ms();
    for (size_t i = 0; i < kMostConnections; ++i) {
      if (all[i].file < 0) continue;
      if (ready > 0 && files[i + 1].revents != 0)
        go_on(all[i]);
      else if (now - all[i].since_ms > kRequestMs)
        close_connection(all[i]);
    }
    if (ready <= 0 || files[0].revents == 0) continue;
    int file = os::accept(socket);
    if (file == -EMFILE || file == -ENFILE || file == -ENOMEM) os::sleep_ms(50);
    if (file < 0) continue;
    Connection& c = place_for_one(all);
    c.file = file;
    c.since_ms = now;
    c.used = 0;
  }
}

void* run(void*) {
  os::name_thread("larder-endpoint");
  // What it reports goes to stderr: that stays until it listens.
  int socket = -1;
  if (os::leave_files(3))
    socket = listen_there();
  else
    complain("close_range", "the system cannot separate open files; it takes Linux 5.9");
  size_t bytes = round_up(kMostConnections * sizeof(Connection), os::page_size());
  auto* all = static_cast<Connection*>(socket < 0 ? nullptr : os::map(bytes));
  if (all != nullptr && endpoint.is_local) {
    endpoint.file = os::id_of_socket(endpoint.address.local.sun_path);
    endpoint.process = os::process_id();
  }
  os::close_standard_files();
  endpoint.starting.store(0, std::memory_order_release);
  os::wake_one(reinterpret_cast<uint32_t*>(&endpoint.starting));
  if (all == nullptr) return nullptr;
  for (size_t i = 0; i < kMostConnections; ++i) all[i].file = -1;
  serve_all(socket, all);
}

bool start_thread() {
  constexpr size_t kStackBytes = 256 << 10;
  pthread_attr_t attributes;
  pthread_t thread;
  if (pthread_attr_init(&attributes) != 0) return false;
  pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
  pthread_attr_setstacksize(&attributes, kStackBytes);
  bool started = pthread_create(&thread, &attributes, run, nullptr) == 0;
  pthread_attr_destroy(&attributes);
  return started;
}

[[gnu::destructor(101)]] void remove_socket() {
  const char* path = endpoint.address.local.sun_path;
  // The program may be in another directory by now, or the name be another's.
  if (endpoint.process != 0 && endpoint.process == os::process_id() && endpoint.file.inode != 0 &&
      os::id_of_socket(path) == endpoint.file)
    os::remove(path);
}

}  // namespace

void endpoint_init() {
  const char* where = secure_getenv("LARDER_LISTEN");
  static constexpr char kUnix[] = "unix:";
  bool is_local = strncmp(where, kUnix, sizeof kUnix - 1) == 0;
  if (!(is_local ? take_path(where + sizeof kUnix - 1) : take_loopback(where))) return;
  int saved = errno;
  endpoint.starting.store(1, std::memory_order_relaxed);
  // Signals are the program's: a thread inherits the mask it is made under.
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  bool started = start_thread();
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  if (!started) complain("the thread", "it cannot be made");
  while (started && endpoint.starting.load(std::memory_order_acquire) != 0)
    os::wait(reinterpret_cast<uint32_t*>(&endpoint.starting), 1);
  errno = saved;
}

}  // namespace larder
