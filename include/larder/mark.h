/* Marks in a recording: what the program itself calls a unit of its work.
 *
 *   larder_mark("request");
 *
 * Under `larder record` the name (255 bytes of it at most), the time and the thread go into the
 * trace, so that allocations can be counted per request. Without the recorder a mark costs a load
 * and a branch; nothing needs to be linked. From any thread and in signal handlers, except that a
 * program's first mark looks the recorder up by dlsym. C and C++.
 */
#ifndef LARDER_MARK_H
#define LARDER_MARK_H

#ifdef __cplusplus
extern "C" {
#endif

typedef void (*larder_mark_function)(const char*);

/* Weak, so that neither libdl (before glibc 2.34) nor a static program needs to have it. */
extern void* larder_mark_dlsym(void*, const char*) __asm__("dlsym") __attribute__((weak));
extern char* larder_mark_dlerror(void) __asm__("dlerror") __attribute__((weak));

/* One a library or program, however many of its files include this. */
__attribute__((weak, visibility("hidden"))) void larder_mark_first(const char* name);

/* Null once it is known that nobody records. */
__attribute__((weak, visibility("hidden"))) larder_mark_function larder_mark_hook =
    larder_mark_first;

__attribute__((weak, visibility("hidden"))) void larder_mark_first(const char* name) {
  larder_mark_function found = 0;
  if (larder_mark_dlsym) {
    /* RTLD_DEFAULT is null in every libc for Linux. */
    void* symbol = larder_mark_dlsym(0, "larder_record_mark");
    __builtin_memcpy(&found, &symbol, sizeof found);
  }
  __atomic_store_n(&larder_mark_hook, found, __ATOMIC_RELAXED);
  if (found) {
    found(name);
  } else if (larder_mark_dlerror) {
    larder_mark_dlerror(); /* what was not found is no error of the program's */
  }
}

static inline void larder_mark(const char* name) {
  larder_mark_function hook = __atomic_load_n(&larder_mark_hook, __ATOMIC_RELAXED);
  if (hook) {
    hook(name);
  }
}

#ifdef __cplusplus
}
#endif

#endif
