// Texts of few letters beside std::string_view.
#include <charconv>
#include <string>
#include <string_view>

#include "kit.h"

const char* const kPart = "text";

namespace {

larder_text slice_of(const std::string& text) { return larder_text_make(text.data(), text.size()); }

bool same(larder_text text, std::string_view expected) {
  return text.size == expected.size() && std::string_view(text.data, text.size) == expected;
}

int sign(int order) { return (order > 0) - (order < 0); }

// On the heap at its exact size, so that a byte too far is found.
std::string some_text(Choices& choices, size_t longest) {
  std::string made = choices.text(choices.below(longest + 1), 3);
  for (char& letter : made) {
    if (choices.one_in(8)) {
      letter = " \t\n,0\0-\xff"[choices.below(8)];
    }
  }
  made.shrink_to_fit();
  return made;
}

void check_pair(const std::string& a, const std::string& b) {
  larder_text one = slice_of(a), other = slice_of(b);
  CHECK(larder_text_equal(one, other) == (a == b));
  CHECK(sign(larder_text_compare(one, other)) == sign(a.compare(b)));
  CHECK(larder_text_starts_with(one, other) == (a.compare(0, b.size(), b) == 0));
  CHECK(larder_text_ends_with(one, other) ==
        (a.size() >= b.size() && a.compare(a.size() - b.size(), b.size(), b) == 0));
  size_t at = a.find(b);
  CHECK(larder_text_find(one, other) == (at == std::string::npos ? LARDER_TEXT_NONE : at));
  if (!b.empty()) {
    larder_text before, behind;
    bool found = larder_text_cut(one, other, &before, &behind);
    CHECK(found == (at != std::string::npos));
    CHECK(same(before, std::string_view(a).substr(0, at)));
    CHECK(found ? same(behind, std::string_view(a).substr(at + b.size())) : behind.size == 0);
  }
}

void check_slice(const std::string& a, size_t from, size_t size) {
  larder_text part = larder_text_slice(slice_of(a), from, size);
  CHECK(from > a.size() ? part.size == 0 : same(part, std::string_view(a).substr(from, size)));
  std::string_view trimmed = a;
  const char spaces[] = " \t\n\v\f\r";
  size_t first = trimmed.find_first_not_of(spaces);
  size_t last = trimmed.find_last_not_of(spaces);
  trimmed = first == std::string::npos ? "" : trimmed.substr(first, last - first + 1);
  CHECK(same(larder_text_trim(slice_of(a)), trimmed));
}

void check_split(const std::string& a, char separator) {
  size_t at = a.find(separator);
  CHECK(larder_text_find_char(slice_of(a), separator) ==
        (at == std::string::npos ? LARDER_TEXT_NONE : at));
  larder_text rest = slice_of(a), part;
  size_t from = 0, parts = 0;
  while (larder_text_split(&rest, separator, &part)) {
    size_t to = a.find(separator, from);
    CHECK(from <= a.size() && same(part, std::string_view(a).substr(from, to - from)));
    from = to == std::string::npos ? a.size() + 1 : to + 1;
    parts++;
  }
  CHECK(from == a.size() + 1 && parts >= 1);
}

template <typename Number>
void check_number(const std::string& text, int base, bool taken, Number value) {
  Number expected = 77;
  const char* end = text.data() + text.size();
  auto read = std::from_chars(text.data(), end, expected, base);
  bool valid = read.ec == std::errc() && read.ptr == end;
  CHECK(taken == valid && value == (valid ? expected : 77));
}

void check_numbers(Choices& choices) {
  unsigned base = choices.below(2) == 0 ? 10 : 2 + unsigned(choices.below(35));
  char made[80];
  char* end = std::to_chars(made, made + sizeof made, int64_t(choices.word() >> choices.below(64)),
                            int(base))
                  .ptr;
  std::string text(made, end);
  switch (choices.below(8)) {
    case 0:
      text = some_text(choices, 4);
      break;
    case 1:
      text += "0aZ/:@[`{ +"[choices.below(11)];
      break;
    case 2:
      text = std::to_string(~uint64_t{0} - choices.below(3) + choices.below(3));
      break;
    case 3:
      text = std::to_string(INT64_MIN + int64_t(choices.below(3)));
      text.back() = char('0' + choices.below(10));
      break;
    case 4:
      text = "-" + text;
      break;
    default:
      break;
  }
  text.shrink_to_fit();
  uint64_t of_unsigned = 77;
  bool taken = larder_text_to_uint64(slice_of(text), base, &of_unsigned);
  check_number(text, int(base), taken, of_unsigned);
  int64_t of_signed = 77;
  taken = larder_text_to_int64(slice_of(text), base, &of_signed);
  check_number(text, int(base), taken, of_signed);
}

void check_empty() {
  larder_text none = larder_text_make(nullptr, 0), part, behind;
  CHECK(larder_text_equal(none, LARDER_TEXT("")) && larder_text_compare(none, none) == 0);
  CHECK(larder_text_find(none, none) == 0 && larder_text_find_char(none, 'a') == LARDER_TEXT_NONE);
  CHECK(!larder_text_cut(none, LARDER_TEXT("a"), &part, &behind) && part.size == 0);
  CHECK(larder_text_trim(none).size == 0 && larder_text_slice(none, 3, 4).size == 0);
  CHECK(larder_text_starts_with(none, none) && larder_text_ends_with(LARDER_TEXT("a"), none));
  CHECK(!larder_text_split(&none, 'a', &part));
  CHECK(larder_text_equal(larder_text_of("abc"), LARDER_TEXT("abc")));
}

}  // namespace

void run(Choices& choices) {
  check_empty();
  while (choices.more()) {
    std::string a = some_text(choices, choices.one_in(8) ? 100 : 12);
    switch (choices.below(4)) {
      case 0: {
        std::string b = a.substr(choices.below(a.size() + 1), choices.below(8));
        check_pair(a, choices.below(4) == 0 ? some_text(choices, 3) : b);
        break;
      }
      case 1:
        check_slice(a, choices.below(14), choices.one_in(8) ? SIZE_MAX : choices.below(14));
        break;
      case 2:
        check_split(a, ",a\0"[choices.below(3)]);
        break;
      default:
        check_numbers(choices);
    }
  }
}
