/* Only libc allocates, which no linker sees. */
#include <string.h>

int main(int count, char** words) { return !strdup(words[count - 1]); }
