/* For C programs: which libraries are in the process. */
#pragma once

#include <stdio.h>
#include <string.h>

/* Whether a path in the process's map has this part; -1 if the map cannot be read. */
static int mapped(const char* part) {
  static char line[4096];
  int found = 0;
  FILE* maps = fopen("/proc/self/maps", "r");
  if (maps == NULL) return -1;
  while (fgets(line, sizeof line, maps) != NULL) found |= strstr(line, part) != NULL;
  fclose(maps);
  return found;
}
