// crimes KIND SIZE PLACE LANGUAGE: commits one memory error. `crimes` alone lists all, a line each.
//
//   SIZE      small, medium, large, mapping   bytes: kSizes
//   PLACE     same, thread, child             who makes the wrong call: the thread that has
//   allocated, another
//                                             one, or a child of fork
//   LANGUAGE  c, c++                          malloc and free, or new and delete
//
// Prints "passed" and exits 0 if nothing stops it. An error that is stopped ends the process by a
// signal. Objects are filled with 0x5A and have neighbours of their size in use and free, as in a
// program that has run for a while.
#include <malloc.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <functional>
#include <future>
#include <new>
#include <string>
#include <thread>
#include <vector>

namespace {

struct Size {
  const char* name;
  size_t bytes;
};
constexpr Size kSizes[] = {
    {"small", 48}, {"medium", 3000}, {"large", 100'000}, {"mapping", 4'000'000}};
constexpr const char* kPlaces[] = {"same", "thread", "child"};
constexpr const char* kLanguages[] = {"c", "c++"};

struct Scene {
  size_t bytes;
  bool is_cxx;
  std::string place;
  std::vector<char*> neighbours;
  // Started before anything is freed: what a thread allocates for itself could take the object's
  // place.
  std::thread other;
  std::promise<const std::function<void()>*> work;
  std::promise<void> done;

  char* allocate(size_t size) const {
    void* p = is_cxx ? ::operator new(size) : malloc(size);
    memset(p, 0x5A, size);
    return static_cast<char*>(p);
  }
  void release(void* p) const { is_cxx ? ::operator delete(p) : free(p); }

  // Runs the wrong call where it belongs.
  void commit(const std::function<void()>& call) {
    if (place == "same") return call();
    if (place == "thread") {
      work.set_value(&call);
      return done.get_future().wait();
    }
    pid_t child = fork();
    if (child == 0) {
      call();
      _exit(0);
    }
    int status = 0;
    if (waitpid(child, &status, 0) != child) exit(3);
    if (WIFSIGNALED(status)) {
      signal(WTERMSIG(status), SIG_DFL);
      raise(WTERMSIG(status));
    }
    if (status != 0) exit(3);
  }
  // Three in use, three free, in between.
  void settle() {
    std::future<const std::function<void()>*> order = work.get_future();
    other = std::thread([this, order = std::move(order)]() mutable {
      (*order.get())();
      done.set_value();
    });
    for (int i = 0; i < 6; ++i) neighbours.push_back(allocate(bytes));
    for (int i = 0; i < 6; i += 2) release(neighbours[size_t(i)]);
  }
  void allocate_more(int count) const {
    for (int i = 0; i < count; ++i) allocate(bytes);
  }
};

char global[256];

// Hides from the compiler what it would warn of.
template <typename T>
T* hidden(T* p) {
  __asm__("" : "+r"(p));
  return p;
}

void double_free(Scene& scene) {
  char* p = scene.allocate(scene.bytes);
  scene.release(p);
  scene.commit([&] { scene.release(hidden(p)); });
}

void double_free_later(Scene& scene) {
  char* p = scene.allocate(scene.bytes);
  char* q = scene.allocate(scene.bytes);
  scene.release(p);
  scene.release(q);
  scene.commit([&] { scene.release(hidden(p)); });
}

// Beyond what small caches of free objects remember.
void double_free_much_later(Scene& scene) {
  std::vector<char*> many;
  for (int i = 0; i < 40; ++i) many.push_back(scene.allocate(scene.bytes));
  for (char* p : many) scene.release(p);
  scene.commit([&] { scene.release(hidden(many[7])); });
}

void double_free_by_two(Scene& scene) {
  char* p = scene.allocate(scene.bytes);
  std::thread([&] { scene.release(p); }).join();
  scene.commit([&] { scene.release(hidden(p)); });
}

void free_within(Scene& scene) {
  char* p = scene.allocate(scene.bytes);
  scene.commit([&] { scene.release(hidden(p + 16)); });
}

void free_misaligned(Scene& scene) {
  char* p = scene.allocate(scene.bytes);
  scene.commit([&] { scene.release(hidden(p + 1)); });
}

void free_far_within(Scene& scene) {
  char* p = scene.allocate(scene.bytes);
  scene.commit([&] { scene.release(hidden(p + scene.bytes / 2 / 16 * 16)); });
}

void free_before(Scene& scene) {
  char* p = scene.allocate(scene.bytes);
  scene.commit([&] { scene.release(hidden(p - 16)); });
}

void free_of_stack(Scene& scene) {
  alignas(16) char local[256] = {};
  scene.commit([&] { scene.release(hidden(local + 64)); });
}

void free_of_global(Scene& scene) {
  scene.commit([&] { scene.release(hidden(global + 64)); });
}

void free_of_nowhere(Scene& scene) {
  scene.commit([&] { scene.release(hidden(reinterpret_cast<char*>(uintptr_t{0x123'4567'8900}))); });
}

void realloc_of_free(Scene& scene) {
  char* p = scene.allocate(scene.bytes);
  scene.release(p);
  scene.commit([&] { (void)!realloc(hidden(p), scene.bytes * 2); });
}

void realloc_within(Scene& scene) {
  char* p = scene.allocate(scene.bytes);
  scene.commit([&] { (void)!realloc(hidden(p + 16), scene.bytes * 2); });
}

void usable_size_of_free(Scene& scene) {
  char* p = scene.allocate(scene.bytes);
  scene.release(p);
  scene.commit([&] { (void)malloc_usable_size(hidden(p)); });
}

// The list of free objects leads to a place of the program's, and then to its content.
void write_after_free(Scene& scene) {
  char* p = scene.allocate(scene.bytes);
  scene.release(p);
  scene.commit([&] {
    const char* target = global;
    memcpy(hidden(p), &target, sizeof target);
    scene.allocate_more(8);
  });
}

void fill_after_free(Scene& scene) {
  char* p = scene.allocate(scene.bytes);
  scene.release(p);
  scene.commit([&] {
    memset(hidden(p), 'A', scene.bytes);
    scene.allocate_more(8);
  });
}

void overflow(Scene& scene, size_t bytes) {
  char* p = scene.allocate(scene.bytes);
  char* q = scene.allocate(scene.bytes);
  scene.commit([&] {
    memset(hidden(p) + malloc_usable_size(p), 0xA5, bytes);
    scene.release(p);
    scene.release(q);
    scene.allocate_more(8);
  });
}

void delete_of_other_size(Scene& scene) {
  auto* p = static_cast<char*>(::operator new(scene.bytes));
  scene.commit([&] { ::operator delete(hidden(p), scene.bytes * 2); });
}

void delete_of_other_alignment(Scene& scene) {
  auto* p = static_cast<char*>(::operator new(scene.bytes));
  while (uintptr_t(p) % 4096 == 0) p = static_cast<char*>(::operator new(scene.bytes));
  scene.commit([&] { ::operator delete(hidden(p), std::align_val_t(4096)); });
}

struct Kind {
  const char* name;
  void (*commit)(Scene&);
  bool of_cxx_alone = false;
};
constexpr Kind kKinds[] = {
    {"double-free", double_free},
    {"double-free-later", double_free_later},
    {"double-free-much-later", double_free_much_later},
    {"double-free-by-two", double_free_by_two},
    {"free-within", free_within},
    {"free-misaligned", free_misaligned},
    {"free-far-within", free_far_within},
    {"free-before", free_before},
    {"free-of-stack", free_of_stack},
    {"free-of-global", free_of_global},
    {"free-of-nowhere", free_of_nowhere},
    {"realloc-of-free", realloc_of_free},
    {"realloc-within", realloc_within},
    {"usable-size-of-free", usable_size_of_free},
    {"write-after-free", write_after_free},
    {"fill-after-free", fill_after_free},
    {"overflow-by-1", [](Scene& scene) { overflow(scene, 1); }},
    {"overflow-by-64", [](Scene& scene) { overflow(scene, 64); }},
    {"delete-of-other-size", delete_of_other_size, true},
    {"delete-of-other-alignment", delete_of_other_alignment, true},
};

int list_all() {
  for (const Kind& kind : kKinds)
    for (const Size& size : kSizes)
      for (const char* place : kPlaces)
        for (const char* language : kLanguages)
          if (!kind.of_cxx_alone || strcmp(language, "c++") == 0)
            printf("%s %s %s %s\n", kind.name, size.name, place, language);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc == 1) return list_all();
  if (argc != 5) return fprintf(stderr, "usage: crimes [KIND SIZE PLACE LANGUAGE]\n"), 2;
  for (const Kind& kind : kKinds) {
    if (strcmp(kind.name, argv[1]) != 0) continue;
    for (const Size& size : kSizes) {
      if (strcmp(size.name, argv[2]) != 0) continue;
      Scene scene = {size.bytes, strcmp(argv[4], "c++") == 0, argv[3], {}, {}, {}, {}};
      scene.settle();
      kind.commit(scene);
      puts("passed");
      fflush(stdout);
      _exit(0);
    }
  }
  fprintf(stderr, "crimes: no such crime\n");
  return 2;
}
