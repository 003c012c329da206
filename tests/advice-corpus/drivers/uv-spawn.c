// A program that runs short commands, one after another.
#include <stdio.h>
#include <stdlib.h>
#include <uv.h>

static int ended;

static void on_exit_of(uv_process_t* process, int64_t status, int signal) {
  ended += status == 0 && signal == 0;
  uv_close((uv_handle_t*)process, NULL);
}

int main(int argc, char** argv) {
  const int runs = argc > 1 ? atoi(argv[1]) : 200;
  uv_loop_t* loop = uv_default_loop();
  char* words[] = {"/bin/true", NULL};
  static uv_process_t process;
  uv_process_options_t options = {.exit_cb = on_exit_of, .file = words[0], .args = words};
  for (int run = 0; run < runs; run++) {
    if (uv_spawn(loop, &process, &options) != 0) return 1;
    uv_run(loop, UV_RUN_DEFAULT);
  }
  uv_loop_close(loop);
  printf("%d commands\n", ended);
  return 0;
}
