#include "endpoint/endpoint_answer.h"

#include <errno.h>

#include "endpoint/endpoint_place.h"
#include "statistics/metrics.h"

namespace larder {

namespace {

constexpr char kPlain[] = "text/plain; charset=utf-8";
constexpr uint64_t kMostSeconds = 3600;

// Arguments with a zero between them.
int write_command_line(TextSink sink, void* context) {
  int file = os::open("/proc/self/cmdline");
  if (file < 0) return -file;
  char text[1024];
  int error = 0;
  for (long n; error == 0 && (n = os::read(file, text, sizeof text)) > 0;)
    error = sink(context, text, size_t(n));
  os::close(file);
  return error;
}

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

const Route* find_route(http::Text path) {
  for (const Route& route : kRoutes)
    if (path.is(route.path)) return &route;
  return nullptr;
}

int put(MappedText& out, const char* text) { return out.add(text, strlen(text)); }

// 0: it is no number from 1 to kMostSeconds.
uint64_t seconds_of(http::Text text) {
  uint64_t seconds = 0;
  for (size_t i = 0; i < text.size; ++i) {
    if (text.at[i] < '0' || text.at[i] > '9') return 0;
    seconds = seconds * 10 + uint64_t(text.at[i] - '0');
    if (seconds > kMostSeconds) return 0;
  }
  return seconds;
}

}  // namespace

void Answer::refuse(int code, const char* why) {
  body.clear();
  status = code;
  type = kPlain;
  after_seconds = 0;
  put(body, why);
}

void Answer::write(int (*content)(TextSink, void*)) {
  int error = content(MappedText::add, &body);
  if (error != 0)
    refuse(500, error == ENOSYS ? "there is no profile here: stacks cannot be walked\n"
                                : "there is no memory for the answer\n");
}

void Answer::begin(const http::Request& request, http::Text posted) {
  refuse(200, "");
  if (!endpoint_place::may_see(request))
    return refuse(401, "the token is LARDER_TOKEN's: Authorization: Bearer or Basic, or ?token=\n");
  const Route* route = find_route(request.path);
  if (request.post && (route == nullptr || route->content != Content::kSymbol))
    return refuse(405, "only addresses are posted, to /pprof/symbol\n");
  if (route == nullptr) {
    refuse(request.path.is("/") ? 200 : 404, "");
    for (const Route& known : kRoutes) {
      put(body, known.path);
      put(body, "\n");
    }
    return;
  }
  http::Text seconds = http::value_of(request.query, "seconds");
  if (seconds.at != nullptr) {
    only_growth = route->content == Content::kGrowth;
    if (route->content != Content::kHeap && !only_growth)
      return refuse(400, "seconds= is for heap, allocs and growth\n");
    after_seconds = seconds_of(seconds);
    if (after_seconds == 0) return refuse(400, "seconds= is a number from 1 to 3600\n");
    if (look.take() != 0) refuse(500, "there is no profile here, or no memory for a look at it\n");
    return;
  }
  switch (route->content) {
    case Content::kHeap:
      return write(profile_write);
    case Content::kGrowth:
      return write(profile_write_growth);
    case Content::kMetrics:
      type = "text/plain; version=0.0.4; charset=utf-8";
      return write(metrics_write);
    case Content::kCommandLine:
      return write(write_command_line);
    case Content::kSymbol:
      if (!request.post)
        put(body, "num_symbols: 1\n");
      else if (write_names(posted, &body) != 0)
        refuse(500, "there is no memory for the names\n");
  }
}

void Answer::finish() {
  after_seconds = 0;
  int error = only_growth ? look.write_growth(MappedText::add, &body)
                          : look.write_change(MappedText::add, &body);
  if (error != 0) refuse(500, "there is no memory for the answer\n");
  look.forget();
}

void Answer::forget() {
  body.clear();
  look.forget();
}

}  // namespace larder
