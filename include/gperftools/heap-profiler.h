/* The interface of gperftools 2.10 to its heap profiler, served by Larder, whose profile is always
 * on: what is started and stopped is the writing of files. docs/tasks/move-from-tcmalloc.md says
 * more.
 *
 * Any thread may call anything.
 */
#ifndef BASE_HEAP_PROFILER_H_
#define BASE_HEAP_PROFILER_H_

#include <stddef.h>

#ifndef PERFTOOLS_DLL_DECL
#define PERFTOOLS_DLL_DECL
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* From now on profiles go to PREFIX.0001.heap, PREFIX.0002.heap, ...: by HeapProfilerDump, at the
 * intervals of the HEAP_PROFILE_ variables, and at exit. Nothing if it runs already. */
PERFTOOLS_DLL_DECL void HeapProfilerStart(const char* prefix);

/* Whether it was started, by a call or by HEAPPROFILE. */
PERFTOOLS_DLL_DECL int IsHeapProfilerRunning();

/* No more files. The profile itself goes on, and keeps what it has. */
PERFTOOLS_DLL_DECL void HeapProfilerStop();

/* Writes the next file; the reason is reported on stderr. Nothing unless it runs. */
PERFTOOLS_DLL_DECL void HeapProfilerDump(const char* reason);

/* The profile as a string to be freed by free(); empty unless it runs. NULL without memory. */
PERFTOOLS_DLL_DECL char* GetHeapProfile();

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif  // BASE_HEAP_PROFILER_H_
