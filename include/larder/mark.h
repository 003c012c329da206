/* Marks in a recording: units of the program's own work.
 *
 *   larder_mark("request");
 *
 * Under `larder record` the name (its first 255 bytes), the time and the thread go into the trace,
 * so that allocations can be counted per request. Without the recorder a mark costs a load and a
 * branch, and needs no library. Any thread; signal handlers, too, except for a program's first
 * mark, which looks the recorder up by dlsym. C and C++.
 */
#ifndef LARDER_MARK_H
#define LARDER_MARK_H

#ifdef __cplusplus
extern "C" {
#endif

typedef void (*larder_mark_function)(const char*);

/* Weak: needed neither from libdl (before glibc 2.34) nor in a static program. */
extern void* larder_mark_dlsym(void*, const char*) __asm__("dlsym") __attribute__((weak));
extern char* larder_mark_dlerror(void) __asm__("dlerror") __attribute__((weak));

/* One a library or program, whichever files include this. */
__attribute__((weak, visibility("hidden"))) void larder_mark_first(const char* name);

/* Null once it is known that there is no recorder. */
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
    larder_mark_dlerror(); /* clears the error, which is not the program's */
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
