// Lines searched one by one with one match data, by a pattern that remembers many places to go back
// to.
#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int main(int argc, char** argv) {
  const int lines = argc > 1 ? atoi(argv[1]) : 2000;
  int error;
  PCRE2_SIZE offset;
  pcre2_code* code = pcre2_compile((PCRE2_SPTR) "^(?:(\\w+)[ ,;])+(\\w+)$", PCRE2_ZERO_TERMINATED,
                                   0, &error, &offset, NULL);
  pcre2_match_data* data = pcre2_match_data_create_from_pattern(code, NULL);
  char line[2001];
  for (int at = 0; at < 2000; at++) line[at] = at % 10 == 9 ? ' ' : 'a';
  line[1999] = 'b';
  line[2000] = '\0';
  int matched = 0;
  for (int number = 0; number < lines; number++) {
    line[5] = (char)('a' + number % 26);
    matched += pcre2_match(code, (PCRE2_SPTR)line, strlen(line), 0, 0, data, NULL) > 0;
  }
  pcre2_match_data_free(data);
  pcre2_code_free(code);
  printf("%d of %d lines\n", matched, lines);
  return 0;
}
