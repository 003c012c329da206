// A table of pictures, of which each is opened, and its first letters are read.
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>

int main(int argc, char** argv) {
  const int reads = argc > 1 ? atoi(argv[1]) : 2000;
  sqlite3* store;
  if (sqlite3_open(":memory:", &store) != SQLITE_OK) return 1;
  if (sqlite3_exec(store,
                   "CREATE TABLE pictures(id INTEGER PRIMARY KEY, content BLOB);"
                   "INSERT INTO pictures VALUES(1, zeroblob(100)), (2, x'0102030405060708');",
                   NULL, NULL, NULL) != SQLITE_OK)
    return 1;
  long sum = 0;
  for (int read = 0; read < reads; read++) {
    sqlite3_blob* picture;
    unsigned char first[8];
    if (sqlite3_blob_open(store, "main", "pictures", "content", 1 + read % 2, 0, &picture) !=
            SQLITE_OK ||
        sqlite3_blob_read(picture, first, sizeof first, 0) != SQLITE_OK)
      return 1;
    sum += first[7];
    sqlite3_blob_close(picture);
  }
  sqlite3_close(store);
  printf("%ld\n", sum);
  return 0;
}
