// Growing bytes, text slices and interning beside others.
#include <larder/kit/bytes.h>
#include <larder/kit/intern.h>
#include <larder/kit/text.h>

#include <charconv>
#include <cstdlib>
#include <cstring>
#include <string_view>
#include <unordered_set>

#include "compare.h"

#if HAVE_ABSL
#include <absl/container/flat_hash_set.h>
#include <absl/strings/numbers.h>
#include <absl/strings/str_split.h>
#endif
#if HAVE_GLIB
#include <glib.h>
#endif

namespace {

constexpr size_t kPieces = 1000;

// 1 to 20 bytes.
std::string_view piece_at(size_t i) {
  static const char text[] = "abcdefghijklmnopqrst";
  return {text, 1 + i * 7 % 20};
}

Task bytes_task() {
  Task task{"bytes", "append 1 to 20 bytes", kPieces};
  task.add("kit", [] {
    larder_bytes text;
    larder_bytes_init(&text);
    for (size_t i = 0; i < kPieces; i++) {
      std::string_view piece = piece_at(i);
      (void)larder_bytes_append(&text, piece.data(), piece.size());
    }
    uint64_t size = strlen(larder_bytes_c_string(&text));
    larder_bytes_release(&text);
    return size;
  });
  task.add("std::string", [] {
    std::string text;
    for (size_t i = 0; i < kPieces; i++) {
      text.append(piece_at(i));
    }
    return uint64_t{strlen(text.c_str())};
  });
#if HAVE_GLIB
  task.add("GString", [] {
    GString* text = g_string_new(nullptr);
    for (size_t i = 0; i < kPieces; i++) {
      std::string_view piece = piece_at(i);
      g_string_append_len(text, piece.data(), gssize(piece.size()));
    }
    uint64_t size = strlen(text->str);
    g_string_free(text, TRUE);
    return size;
  });
#endif
  return task;
}

constexpr size_t kFields = 100;

const std::string& row() {
  static const std::string made = [] {
    std::string text;
    uint64_t state = 1;
    for (size_t i = 0; i < kFields; i++) {
      text += (i > 0 ? "," : "") + std::to_string(random_number(&state) >> 40);
    }
    return text;
  }();
  return made;
}

uint64_t sum_by_strtol() {
  std::string copy = row();
  char* rest = nullptr;
  uint64_t sum = 0;
  for (char* field = strtok_r(&copy[0], ",", &rest); field != nullptr;
       field = strtok_r(nullptr, ",", &rest)) {
    sum += uint64_t(std::strtoll(field, nullptr, 10));
  }
  return sum;
}

uint64_t sum_by_view() {
  std::string_view rest = row();
  uint64_t sum = 0;
  for (bool more = true; more;) {
    size_t at = rest.find(',');
    std::string_view field = rest.substr(0, at);
    more = at != std::string_view::npos;
    rest = more ? rest.substr(at + 1) : std::string_view();
    int64_t number = 0;
    std::from_chars(field.data(), field.data() + field.size(), number);
    sum += uint64_t(number);
  }
  return sum;
}

Task text_task() {
  Task task{"text", "split at a comma and read a number", kFields};
  task.add("kit", [] {
    larder_text rest = larder_text_make(row().data(), row().size()), field;
    uint64_t sum = 0;
    while (larder_text_split(&rest, ',', &field)) {
      int64_t number = 0;
      (void)larder_text_to_int64(field, 10, &number);
      sum += uint64_t(number);
    }
    return sum;
  });
  task.add("std::string_view and from_chars", sum_by_view);
  task.add("copy, strtok_r and strtoll", sum_by_strtol);
#if HAVE_ABSL
  task.add("absl::StrSplit", [] {
    uint64_t sum = 0;
    for (absl::string_view field : absl::StrSplit(absl::string_view(row()), ',')) {
      int64_t number = 0;
      (void)absl::SimpleAtoi(field, &number);
      sum += uint64_t(number);
    }
    return sum;
  });
#endif
#if HAVE_GLIB
  task.add("g_strsplit", [] {
    uint64_t sum = 0;
    gchar** fields = g_strsplit(row().c_str(), ",", -1);
    for (gchar** field = fields; *field != nullptr; field++) {
      sum += uint64_t(g_ascii_strtoll(*field, nullptr, 10));
    }
    g_strfreev(fields);
    return sum;
  });
#endif
  return task;
}

constexpr size_t kTokens = 10000;
constexpr size_t kWords = 1000;

const std::vector<std::string>& tokens() {
  static const std::vector<std::string> made = [] {
    std::vector<std::string> all;
    uint64_t state = 1;
    for (size_t i = 0; i < kTokens; i++) {
      // Each word comes up, so that all tables end with kWords.
      uint64_t word = i < kWords ? i : random_number(&state) % kWords;
      all.push_back("identifier_" + std::to_string(word));
    }
    return all;
  }();
  return made;
}

template <typename Set>
uint64_t intern_in_set() {
  Set set;
  for (const std::string& token : tokens()) {
    keep(set.insert(token).first->data());
  }
  return set.size();
}

Task intern_task() {
  Task task{"intern", "add one of 1000 words", kTokens};
  task.add("kit", [] {
    larder_intern table;
    larder_intern_init(&table, 1);
    for (const std::string& token : tokens()) {
      keep(larder_intern_add(&table, token.data(), token.size()));
    }
    uint64_t count = table.entries.count;
    larder_intern_release(&table);
    return count;
  });
  task.add("std::unordered_set", intern_in_set<std::unordered_set<std::string>>);
#if HAVE_ABSL
  task.add("absl::flat_hash_set", intern_in_set<absl::flat_hash_set<std::string>>);
#endif
#if HAVE_GLIB
  task.add("GStringChunk", [] {
    GStringChunk* chunk = g_string_chunk_new(16 << 10);
    for (const std::string& token : tokens()) {
      keep(g_string_chunk_insert_const(chunk, token.c_str()));
    }
    g_string_chunk_free(chunk);
    return uint64_t{kWords};
  });
#endif
  return task;
}

}  // namespace

std::vector<Task> string_tasks() { return {bytes_task(), text_task(), intern_task()}; }
