/* Text slices: a pointer and a length, so that a part of a text needs no copy and no zero behind
 * it.
 *
 *   larder_text line = larder_text_of("name = value"), key, value;
 *   if (larder_text_cut(line, LARDER_TEXT("="), &key, &value))
 *     use(larder_text_trim(key), larder_text_trim(value));
 *
 * A slice owns nothing: it is valid as long as the bytes are, and is passed by value. Any thread.
 * No function allocates. Bytes are compared as unsigned values, zeros among them; nothing depends
 * on the locale. data may be NULL where size == 0.
 */
#ifndef LARDER_KIT_TEXT_H
#define LARDER_KIT_TEXT_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "memory.h"

typedef struct larder_text {
  const char* data;
  size_t size; /* bytes */
} larder_text;

/* No position. */
#define LARDER_TEXT_NONE SIZE_MAX

/* Of a string literal, without counting at run time. */
#define LARDER_TEXT(literal) larder_text_make("" literal, sizeof(literal) - 1)

#ifdef __cplusplus
extern "C" {
#endif
/* memmem, which strict C11 does not declare: linear time. */
extern void* larder_text_memmem(const void* text, size_t text_size, const void* part,
                                size_t part_size) __asm__("memmem");
#ifdef __cplusplus
}
#endif

/* O(1). */
static inline larder_text larder_text_make(const char* data, size_t size_bytes) {
  larder_text text;
  text.data = data;
  text.size = size_bytes;
  return text;
}

/* Of a C string. O(size). */
static inline larder_text larder_text_of(const char* c_string) {
  return larder_text_make(c_string, strlen(c_string));
}

/* O(size) at most, as are the next two. */
static inline larder_bool larder_text_equal(larder_text a, larder_text b) {
  return a.size == b.size && (a.size == 0 || memcmp(a.data, b.data, a.size) == 0);
}

/* Below, at or above 0 where a is before, equal to or behind b; a prefix is before the whole. */
static inline int larder_text_compare(larder_text a, larder_text b) {
  size_t common = a.size < b.size ? a.size : b.size;
  int order = common == 0 ? 0 : memcmp(a.data, b.data, common);
  return order != 0 ? order : (a.size > b.size) - (a.size < b.size);
}

static inline larder_bool larder_text_starts_with(larder_text text, larder_text prefix) {
  return text.size >= prefix.size &&
         larder_text_equal(larder_text_make(text.data, prefix.size), prefix);
}

static inline larder_bool larder_text_ends_with(larder_text text, larder_text suffix) {
  return text.size >= suffix.size &&
         (suffix.size == 0 ||
          memcmp(text.data + (text.size - suffix.size), suffix.data, suffix.size) == 0);
}

/* The part from byte `from` on, of at most size_bytes; what is beyond the end is left out. O(1). */
static inline larder_text larder_text_slice(larder_text text, size_t from, size_t size_bytes) {
  from = from < text.size ? from : text.size;
  size_t rest = text.size - from;
  return larder_text_make(text.data != NULL ? text.data + from : NULL,
                          size_bytes < rest ? size_bytes : rest);
}

/* The position of the first such byte, or LARDER_TEXT_NONE. O(size). */
static inline size_t larder_text_find_char(larder_text text, char wanted) {
  const void* found = text.size == 0 ? NULL : memchr(text.data, wanted, text.size);
  return found == NULL ? LARDER_TEXT_NONE : (size_t)((const char*)found - text.data);
}

/* The position where `part` first begins, or LARDER_TEXT_NONE; 0 if `part` is empty. O(size of
 * both). */
static inline size_t larder_text_find(larder_text text, larder_text part) {
  if (part.size == 0) {
    return 0;
  }
  const void* found =
      text.size < part.size ? NULL : larder_text_memmem(text.data, text.size, part.data, part.size);
  return found == NULL ? LARDER_TEXT_NONE : (size_t)((const char*)found - text.data);
}

/* The text before and behind the first `separator`, which is not empty. False if there is none;
 * then `before` is all of it and `behind` is empty. O(size). */
static inline larder_bool larder_text_cut(larder_text text, larder_text separator,
                                          larder_text* before, larder_text* behind) {
  size_t at = larder_text_find(text, separator);
  larder_bool found = at != LARDER_TEXT_NONE;
  *before = larder_text_slice(text, 0, at);
  *behind = larder_text_slice(text, found ? at + separator.size : text.size, SIZE_MAX);
  return found;
}

/* Takes the next part off `rest`: up to the first `separator`, or all. False once there are no
 * more. "a,,b" has the parts "a", "" and "b"; an empty text has one part, and one whose data is
 * NULL has none. O(size of the part).
 *
 *   while (larder_text_split(&rest, ',', &part)) { use(part); } */
static inline larder_bool larder_text_split(larder_text* rest, char separator, larder_text* part) {
  if (rest->data == NULL) {
    return 0;
  }
  size_t at = larder_text_find_char(*rest, separator);
  *part = larder_text_slice(*rest, 0, at);
  *rest = at == LARDER_TEXT_NONE ? larder_text_make(NULL, 0)
                                 : larder_text_slice(*rest, at + 1, SIZE_MAX);
  return 1;
}

/* The white space of ASCII. */
static inline larder_bool larder_text_is_space(char c) {
  return c == ' ' || (c >= '\t' && c <= '\r');
}

/* Without the white space at both ends. O(white space). */
static inline larder_text larder_text_trim(larder_text text) {
  while (text.size > 0 && larder_text_is_space(text.data[text.size - 1])) {
    text.size--;
  }
  while (text.size > 0 && larder_text_is_space(text.data[0])) {
    text.data++;
    text.size--;
  }
  return text;
}

/* All of the text as a number in this base, 2 to 36, in letters of either case. False, and *value
 * as it was, for an empty text, for any other character (a sign, white space), and for a number
 * that does not fit. O(size). */
static inline larder_bool larder_text_to_uint64(larder_text text, unsigned base, uint64_t* value) {
  uint64_t sum = 0;
  for (size_t i = 0; i < text.size; i++) {
    unsigned c = (unsigned char)text.data[i];
    unsigned letter = c | 0x20U;
    unsigned digit = c >= '0' && c <= '9'             ? c - '0'
                     : letter >= 'a' && letter <= 'z' ? letter - 'a' + 10
                                                      : base;
    if (digit >= base || __builtin_mul_overflow(sum, base, &sum) ||
        __builtin_add_overflow(sum, digit, &sum)) {
      return 0;
    }
  }
  if (text.size > 0) {
    *value = sum;
  }
  return text.size > 0;
}

/* The same with an optional '-' in front. */
static inline larder_bool larder_text_to_int64(larder_text text, unsigned base, int64_t* value) {
  larder_bool negative = text.size > 0 && text.data[0] == '-';
  uint64_t size = 0;
  if (!larder_text_to_uint64(larder_text_slice(text, negative, SIZE_MAX), base, &size) ||
      size > (uint64_t)INT64_MAX + negative) {
    return 0;
  }
  /* -INT64_MIN is no int64_t. */
  *value = negative ? -(int64_t)(size / 2) - (int64_t)(size - size / 2) : (int64_t)size;
  return 1;
}

#endif
