// Iterates over /proc/self/maps: no libc, no allocation. For one thread.
#pragma once

#include "os/os.h"

namespace larder {

struct Mapping {
  uintptr_t begin, end;
  bool readable, writable, shared;
  bool guarded;     // right behind an inaccessible mapping: perhaps a stack
  uint64_t offset;  // in the file
  char name[512];
};

class Mappings {
 public:
  Mappings() : file_(os::open("/proc/self/maps")) {}
  ~Mappings() {
    if (file_ >= 0) os::close(file_);
  }
  Mappings(const Mappings&) = delete;
  Mappings& operator=(const Mappings&) = delete;
  bool opened() const { return file_ >= 0; }

  bool next(Mapping* m) {
    uintptr_t end_before = m->end;
    bool untouchable = !m->readable && !m->writable;
    if (!peek()) return false;
    m->begin = number();
    take();
    m->end = number();
    take();
    m->readable = take() == 'r';
    m->writable = take() == 'w';
    take();
    m->shared = take() == 's';
    m->guarded = untouchable && end_before == m->begin;
    take();
    m->offset = number();
    for (int field = 0; field < 3; ++field) skip_field();
    size_t length = 0;
    for (int c; (c = take()) != '\n' && c >= 0;)
      if (length < sizeof m->name - 1) m->name[length++] = char(c);
    m->name[length] = 0;
    return true;
  }

 private:
  bool peek() {
    if (at_ < used_) return true;
    long n = os::read(file_, text_, sizeof text_);
    at_ = 0;
    used_ = n > 0 ? size_t(n) : 0;
    return used_ > 0;
  }
  int take() { return peek() ? static_cast<unsigned char>(text_[at_++]) : -1; }
  uintptr_t number() {
    uintptr_t value = 0;
    while (peek()) {
      char c = text_[at_];
      unsigned digit = c >= '0' && c <= '9' ? unsigned(c - '0') : unsigned(c - 'a') + 10;
      if (digit > 15) break;
      value = value * 16 + digit;
      ++at_;
    }
    return value;
  }
  // With the blanks behind it.
  void skip_field() {
    while (peek() && text_[at_] != ' ' && text_[at_] != '\n') ++at_;
    while (peek() && text_[at_] == ' ') ++at_;
  }

  int file_;
  size_t at_ = 0, used_ = 0;
  char text_[4096];
};

}  // namespace larder
