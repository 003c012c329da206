// What a comparison consists of: tasks, each done by the kit and by others, with the same result.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

struct Contestant {
  const char* name;
  // Does the task once. The result is the same for all contestants of a task.
  std::function<uint64_t()> run;
};

// The first contestant is the kit.
struct Task {
  const char* part;
  const char* what;
  size_t operations;  // of one run
  std::vector<Contestant> contestants = {};

  void add(const char* name, std::function<uint64_t()> run) {
    contestants.push_back({name, std::move(run)});
  }
};

std::vector<Task> container_tasks();
std::vector<Task> memory_tasks();
std::vector<Task> string_tasks();
std::vector<Task> number_tasks();

// The same in each run.
inline uint64_t random_number(uint64_t* state) {
  uint64_t z = *state += 0x9E3779B97F4A7C15;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EB;
  return z ^ (z >> 31);
}

// The compiler must assume that it is read.
inline void keep(const void* p) { __asm__ volatile("" : : "r"(p) : "memory"); }
