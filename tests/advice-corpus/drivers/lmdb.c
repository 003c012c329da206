// A store that commits after each small change.
#include <lmdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

int main(int argc, char** argv) {
  const int commits = argc > 1 ? atoi(argv[1]) : 5000;
  char folder[] = "/tmp/lmdb-XXXXXX";
  if (mkdtemp(folder) == NULL) return 1;
  MDB_env* env;
  MDB_dbi dbi = 0;
  mdb_env_create(&env);
  mdb_env_set_mapsize(env, 16 << 20);
  if (mdb_env_open(env, folder, MDB_NOSYNC | MDB_NOMETASYNC, 0600) != 0) return 1;
  for (int commit = 0; commit < commits; commit++) {
    MDB_txn* txn;
    if (mdb_txn_begin(env, NULL, 0, &txn) != 0) return 1;
    if (commit == 0 && mdb_dbi_open(txn, NULL, 0, &dbi) != 0) return 1;
    int number = commit % 100;
    MDB_val key = {sizeof number, &number};
    MDB_val value = {sizeof commit, &commit};
    if (mdb_put(txn, dbi, &key, &value, 0) != 0 || mdb_txn_commit(txn) != 0) return 1;
  }
  MDB_stat stat;
  mdb_env_stat(env, &stat);
  mdb_env_close(env);
  char name[64];
  snprintf(name, sizeof name, "%s/data.mdb", folder);
  unlink(name);
  snprintf(name, sizeof name, "%s/lock.mdb", folder);
  unlink(name);
  rmdir(folder);
  printf("%zu entries\n", stat.ms_entries);
  return 0;
}
