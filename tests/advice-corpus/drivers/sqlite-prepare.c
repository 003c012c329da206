// Statements that are prepared, and dropped.
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>

int main(int argc, char** argv) {
  const int statements = argc > 1 ? atoi(argv[1]) : 3000;
  sqlite3* store;
  if (sqlite3_open(":memory:", &store) != SQLITE_OK) return 1;
  if (sqlite3_exec(store, "CREATE TABLE points(x INTEGER PRIMARY KEY, y)", NULL, NULL, NULL) !=
      SQLITE_OK)
    return 1;
  int columns = 0;
  for (int number = 0; number < statements; number++) {
    sqlite3_stmt* statement;
    if (sqlite3_prepare_v2(store, "SELECT y FROM points", -1, &statement, NULL) != SQLITE_OK)
      return 1;
    columns += sqlite3_column_count(statement);
    sqlite3_finalize(statement);
  }
  sqlite3_close(store);
  printf("%d columns\n", columns);
  return 0;
}
