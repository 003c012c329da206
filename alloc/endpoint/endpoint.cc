#include "endpoint/endpoint.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <atomic>
#include <new>

#include "endpoint/endpoint_answer.h"
#include "endpoint/endpoint_place.h"
#include "endpoint/http.h"
#include "os/mapped_text.h"
#include "os/os_socket.h"

namespace larder {

namespace {

constexpr size_t kMostConnections = 16, kMostLooking = 4;
constexpr uint64_t kRequestMs = 2000, kAnswerMs = 30000;
// Of answers that are being sent: what comes then waits for nobody and is refused.
constexpr size_t kMostAnswerBytes = size_t{64} << 20;

// One client: its request is read, perhaps a time waited for, its answer sent. Nothing of it
// blocks.
struct Connection {
  enum State : uint8_t { kFree, kReading, kLooking, kSending } state = kFree;
  int file = -1;
  bool half_closed = false;  // it sends no more, and may read still, or have gone
  uint64_t until_ms = 0;     // it is read, or sent; or the second look is due
  MappedText request;
  Answer answer = {};
  char head[400];
  size_t head_bytes = 0, sent = 0;
};

constinit std::atomic<uint32_t> starting{0};

void close_connection(Connection& c) {
  os::close(c.file);
  c.request.clear();
  c.answer.forget();
  c.state = Connection::kFree;
  c.half_closed = false;
  c.file = -1;
}

// What the client still sends, unread, would reset the connection before it has read the answer.
void drop_rest(int file) {
  char rest[1024];
  for (int i = 0; i < 64 && os::receive(file, rest, sizeof rest) > 0; ++i) {
  }
}

void send_more(Connection& c) {
  size_t whole = c.head_bytes + c.answer.body.length();
  while (c.sent < whole) {
    bool in_head = c.sent < c.head_bytes;
    const char* from = in_head ? c.head + c.sent : c.answer.body.text() + (c.sent - c.head_bytes);
    long n = os::send(c.file, from, (in_head ? c.head_bytes : whole) - c.sent);
    if (n == -EAGAIN || n == -EINTR) return;
    if (n <= 0) return close_connection(c);
    c.sent += size_t(n);
  }
  drop_rest(c.file);
  close_connection(c);
}

void begin_sending(Connection& c, uint64_t now) {
  const Answer& answer = c.answer;
  int n = snprintf(c.head, sizeof c.head,
                   "HTTP/1.1 %d %s\r\nContent-Type: %s\r\nContent-Length: %zu\r\n"
                   "Cache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\n%s%s"
                   "Connection: close\r\n\r\n",
                   answer.status, http::reason(answer.status), answer.type, answer.body.length(),
                   answer.status == 401 ? "WWW-Authenticate: Bearer\r\n" : "",
                   answer.status == 405 ? "Allow: GET\r\n" : "");
  c.head_bytes = size_t(n);
  c.sent = 0;
  c.request.clear();
  c.state = Connection::kSending;
  c.until_ms = now + kAnswerMs;
  send_more(c);
}

size_t count(const Connection* all, Connection::State state) {
  size_t n = 0;
  for (size_t i = 0; i < kMostConnections; ++i) n += all[i].state == state ? 1 : 0;
  return n;
}

size_t answer_bytes(const Connection* all) {
  size_t bytes = 0;
  for (size_t i = 0; i < kMostConnections; ++i) bytes += all[i].answer.body.capacity();
  return bytes;
}

// Of those that wait, one that may have gone leaves its place to the next. False: there is none.
bool let_one_go(Connection* all) {
  for (Connection* c = all; c < all + kMostConnections; ++c) {
    if (c->state != Connection::kLooking || !c->half_closed) continue;
    close_connection(*c);
    return true;
  }
  return false;
}

void answer(Connection* all, Connection& c, const http::Request& request, uint64_t now) {
  http::Text posted = {c.request.text() + request.head_bytes, request.body_bytes};
  if (answer_bytes(all) > kMostAnswerBytes)
    c.answer.refuse(503, "too much is being sent to others\n");
  else
    c.answer.begin(request, posted);
  if (c.answer.after_seconds != 0 && count(all, Connection::kLooking) >= kMostLooking &&
      !let_one_go(all)) {
    c.answer.forget();
    c.answer.refuse(503, "as many as may wait for a second look at once do\n");
  }
  if (c.answer.after_seconds == 0) return begin_sending(c, now);
  c.state = Connection::kLooking;
  c.until_ms = now + c.answer.after_seconds * 1000;
}

void read_more(Connection* all, Connection& c, uint64_t now) {
  char part[4096];
  long n = os::receive(c.file, part, sizeof part);
  if (n == -EAGAIN || n == -EINTR) return;
  if (n <= 0) return close_connection(c);
  if (c.request.add(part, size_t(n)) != 0) {
    // The line may not fit either.
    c.answer.refuse(500, "there is no memory for the request\n");
    return begin_sending(c, now);
  }
  http::Request request;
  int status = http::parse(c.request.text(), c.request.length(), &request);
  if (status == 0) return;
  if (status != 200) {
    c.answer.refuse(status, "the request is not understood: GET PATH\n");
    return begin_sending(c, now);
  }
  if (c.request.length() == request.head_bytes + request.body_bytes) answer(all, c, request, now);
}

void go_on(Connection* all, Connection& c, short ready, uint64_t now) {
  switch (c.state) {
    case Connection::kReading:
      if (ready != 0) return read_more(all, c, now);
      break;
    case Connection::kLooking:
      if ((ready & ~POLLRDHUP) != 0) return close_connection(c);  // it has gone
      c.half_closed |= ready != 0;
      if (now < c.until_ms) return;
      c.answer.finish();
      return begin_sending(c, now);
    case Connection::kSending:
      if (ready != 0) send_more(c);
      break;
    case Connection::kFree:
      return;
  }
  if (c.state != Connection::kFree && now >= c.until_ms) close_connection(c);
}

// A place that is free, or that of the one who has been at it longest: who says nothing goes before
// who does not listen; who waits for a time stays.
Connection& place_for_one(Connection* all) {
  auto rank = [](const Connection& c) {
    return c.state == Connection::kFree      ? 0
           : c.state == Connection::kReading ? 1
           : c.state == Connection::kSending ? 2
                                             : 3;
  };
  Connection* place = all;
  for (Connection* c = all; c < all + kMostConnections; ++c)
    if (rank(*c) < rank(*place) || (rank(*c) == rank(*place) && c->until_ms < place->until_ms))
      place = c;
  if (place->state != Connection::kFree) close_connection(*place);
  return *place;
}

// Until something has to be done, whoever says something.
int wait_ms(const Connection* all, uint64_t now) {
  uint64_t until = UINT64_MAX;
  for (size_t i = 0; i < kMostConnections; ++i)
    if (all[i].state != Connection::kFree && all[i].until_ms < until) until = all[i].until_ms;
  return until == UINT64_MAX ? -1 : until <= now ? 0 : int(until - now);
}

// What happens at the socket and to the clients, by their places; at most a second later where the
// system refuses to tell. It does if there are more than RLIMIT_NOFILE, so free places are left
// out.
short wait_for_all(int socket, const Connection* all, short (&ready)[kMostConnections]) {
  pollfd files[kMostConnections + 1] = {{socket, POLLIN, 0}};
  size_t used = 1;
  for (size_t i = 0; i < kMostConnections; ++i) {
    Connection::State state = all[i].state;
    if (state == Connection::kFree) continue;
    short what = state == Connection::kReading   ? POLLIN
                 : state == Connection::kSending ? POLLOUT
                 : all[i].half_closed            ? short{0}
                                                 : POLLRDHUP;
    files[used++] = {all[i].file, what, 0};
  }
  int count = os::poll(files, used, wait_ms(all, os::now_ms()));
  if (count < 0 && count != -EINTR) os::sleep_ms(1000);
  used = 1;
  for (size_t i = 0; i < kMostConnections; ++i)
    ready[i] = all[i].state == Connection::kFree || count <= 0 ? short{0} : files[used++].revents;
  return count > 0 ? files[0].revents : short{0};
}

[[noreturn]] void serve_all(int socket, Connection* all) {
  for (;;) {
    short ready[kMostConnections];
    bool one_more = wait_for_all(socket, all, ready) != 0;
    uint64_t now = os::now_ms();
    for (size_t i = 0; i < kMostConnections; ++i) go_on(all, all[i], ready[i], now);
    if (!one_more) continue;
    int file = os::accept(socket);
    if (file == -EMFILE || file == -ENFILE || file == -ENOMEM) os::sleep_ms(50);
    if (file < 0) continue;
    Connection& c = place_for_one(all);
    c.file = file;
    c.state = Connection::kReading;
    c.until_ms = now + kRequestMs;
  }
}

void* run(void*) {
  os::name_thread("larder-endpoint");
  // What it reports goes to stderr: that stays until it listens.
  int socket = -1;
  if (os::leave_files(3))
    socket = endpoint_place::listen();
  else
    endpoint_place::complain("close_range",
                             "the system cannot separate open files; it takes Linux 5.9");
  size_t bytes = round_up(kMostConnections * sizeof(Connection), os::page_size());
  auto* all = static_cast<Connection*>(socket < 0 ? nullptr : os::map(bytes));
  if (all != nullptr) endpoint_place::remember_socket();
  os::close_standard_files();
  starting.store(0, std::memory_order_release);
  os::wake_one(reinterpret_cast<uint32_t*>(&starting));
  if (all == nullptr) return nullptr;
  for (size_t i = 0; i < kMostConnections; ++i) new (&all[i]) Connection;
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

}  // namespace

void endpoint_init() {
  if (!endpoint_place::read(secure_getenv("LARDER_LISTEN"))) return;
  int saved = errno;
  starting.store(1, std::memory_order_relaxed);
  // Signals are the program's: a thread inherits the mask it is made under.
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  bool started = start_thread();
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  if (!started) endpoint_place::complain("the thread", "it cannot be made");
  while (started && starting.load(std::memory_order_acquire) != 0)
    os::wait(reinterpret_cast<uint32_t*>(&starting), 1);
  errno = saved;
}

}  // namespace larder
