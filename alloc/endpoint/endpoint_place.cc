#include "endpoint/endpoint_place.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>

#include "leak/leak.h"
#include "os/line.h"
#include "os/os.h"
#include "os/os_socket.h"

extern "C" [[gnu::weak]] const char* strerrordesc_np(int) noexcept;

namespace larder::endpoint_place {

namespace {

constexpr size_t kLeastToken = 16;

struct Place {
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
};
constinit Place place;

// With %p as the process's id.
bool take_path(const char* pattern) {
  sockaddr_un& local = place.address.local;
  local.sun_family = AF_UNIX;
  TextBuffer path(local.sun_path, sizeof local.sun_path);
  path.put_pattern(pattern, unsigned(os::process_id()));
  if (!path.fits()) complain(pattern, "a socket's path has at most 107 characters");
  if (path.length() == 0) complain("unix:", "there is no path");
  place.is_local = true;
  place.address_bytes = sizeof local;
  return path.fits() && path.length() != 0;
}

bool take_token() {
  const char* token = secure_getenv("LARDER_TOKEN");
  size_t length = token == nullptr ? 0 : strlen(token);
  bool fits = length >= kLeastToken && length < sizeof place.token;
  for (size_t i = 0; fits && i < length; ++i) fits = token[i] > ' ' && token[i] < 127;
  if (fits) memcpy(place.token, token, length);
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
    place.address.four = {};
    place.address.four.sin_family = AF_INET;
    place.address.four.sin_port = htons(uint16_t(port));
    place.address.four.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    place.address_bytes = sizeof place.address.four;
  } else {
    place.address.six = {};
    place.address.six.sin6_family = AF_INET6;
    place.address.six.sin6_port = htons(uint16_t(port));
    place.address.six.sin6_addr = IN6ADDR_LOOPBACK_INIT;
    place.address_bytes = sizeof place.address.six;
  }
  return true;
}

// Who starts at the same place at the same time waits meanwhile, so that no socket is taken for
// dead that is just being made.
class HeldFolder {
 public:
  explicit HeldFolder(const char* path) : folder_(os::hold_folder_of(path)) {}
  ~HeldFolder() {
    if (folder_ >= 0) os::close(folder_);
  }
  HeldFolder(const HeldFolder&) = delete;
  HeldFolder& operator=(const HeldFolder&) = delete;
  bool held() const { return folder_ >= 0; }

 private:
  int folder_;
};

int listen_at_path() {
  const sockaddr_un& local = place.address.local;
  HeldFolder folder(local.sun_path);
  int socket = os::listen_at(&place.address.any, place.address_bytes);
  if (socket != -EADDRINUSE || !folder.held() || !os::is_dead_socket(local)) return socket;
  os::remove(local.sun_path);
  return os::listen_at(&place.address.any, place.address_bytes);
}

[[gnu::destructor(101)]] void remove_socket() {
  const char* path = place.address.local.sun_path;
  // The program may be in another directory by now, or the name be another's.
  if (place.process != 0 && place.process == os::process_id() && place.file.inode != 0 &&
      os::id_of_socket(path) == place.file)
    os::remove(path);
}

}  // namespace

void complain(const char* what, const char* why) {
  Line().put("LARDER_LISTEN: ").put(what).put(": ").put(why).put("; nothing is served").write();
}

bool read(const char* where) {
  static constexpr char kUnix[] = "unix:";
  bool is_local = strncmp(where, kUnix, sizeof kUnix - 1) == 0;
  return is_local ? take_path(where + sizeof kUnix - 1) : take_loopback(where);
}

int listen() {
  int socket =
      place.is_local ? listen_at_path() : os::listen_at(&place.address.any, place.address_bytes);
  if (socket >= 0) return socket;
  const char* why = &strerrordesc_np != nullptr ? strerrordesc_np(-socket) : nullptr;
  complain(place.is_local ? place.address.local.sun_path : "the port",
           why != nullptr ? why : "it cannot be listened at");
  return -1;
}

bool may_see(const http::Request& request) {
  if (place.is_local) return true;
  char password[sizeof place.token];
  http::Text given = request.bearer;
  if (http::password_of(request.basic, password, sizeof password))
    given = {password, strlen(password)};
  if (given.at == nullptr) given = http::value_of(request.query, "token");
  return http::same_secret(given, {place.token, strlen(place.token)});
}

void remember_socket() {
  leak_set_last(remove_socket);
  if (!place.is_local) return;
  place.file = os::id_of_socket(place.address.local.sun_path);
  place.process = os::process_id();
}

}  // namespace larder::endpoint_place
