// An intrusive list: its members have the links. Unsynchronised, but for the size, which any thread
// may read as a hint. All zeros: an empty list.
#pragma once

#include <cstddef>

namespace larder {

template <typename T, T* T::* kNext, T* T::* kPrev>
class List {
 public:
  bool empty() const { return head_ == nullptr; }
  T* front() const { return head_; }
  T* back() const { return tail_; }
  size_t size() const { return __atomic_load_n(&size_, __ATOMIC_RELAXED); }
  void push_front(T* t) { insert(t, nullptr, head_); }
  void push_back(T* t) { insert(t, tail_, nullptr); }
  void remove(T* t) {
    (t->*kPrev != nullptr ? t->*kPrev->*kNext : head_) = t->*kNext;
    (t->*kNext != nullptr ? t->*kNext->*kPrev : tail_) = t->*kPrev;
    t->*kNext = t->*kPrev = nullptr;
    count(size_t(-1));
  }
  T* pop_front() {
    T* t = head_;
    if (t != nullptr) remove(t);
    return t;
  }

 private:
  void insert(T* t, T* before, T* behind) {
    t->*kPrev = before;
    t->*kNext = behind;
    (before != nullptr ? before->*kNext : head_) = t;
    (behind != nullptr ? behind->*kPrev : tail_) = t;
    count(1);
  }
  // No read-modify-write: one thread writes. Relaxed: a hint for others.
  void count(size_t more) { __atomic_store_n(&size_, size_ + more, __ATOMIC_RELAXED); }

  T* head_ = nullptr;
  T* tail_ = nullptr;
  size_t size_ = 0;
};

}  // namespace larder
