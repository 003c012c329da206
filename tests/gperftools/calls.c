/* gperftools' C functions, from a C program without libstdc++ in the process. */
#include <gperftools/malloc_extension_c.h>
#include <gperftools/tcmalloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../alloc/mapped.h"

static int failures;

static void expect(int holds, const char* what) {
  if (holds) return;
  fprintf(stderr, "FAILED gperftools_calls_c: %s\n", what);
  ++failures;
}
#define EXPECT(condition) expect((condition) != 0, #condition)

static size_t property(const char* name) {
  size_t value = 0;
  if (MallocExtension_GetNumericProperty(name, &value) == 0) expect(0, name);
  return value;
}

int main(void) {
  char text[8192];
  int blocks = 0;
  int histogram[kMallocExtensionHistogramSize];
  size_t total = 0;
  EXPECT(mapped("liblarder") == 1);
  size_t before = property("generic.current_allocated_bytes");
  char* p = tc_malloc(5000000);
  memset(p, 1, 5000000);
  EXPECT(property("generic.current_allocated_bytes") >= before + 5000000);
  EXPECT(MallocExtension_GetOwnership(p) == MallocExtension_kOwned);
  EXPECT(MallocExtension_GetOwnership(text) == MallocExtension_kNotOwned);
  EXPECT(MallocExtension_GetAllocatedSize(p) >= 5000000);
  EXPECT(MallocExtension_GetEstimatedAllocatedSize(100) >= 100);
  EXPECT(MallocExtension_VerifyAllMemory());
  EXPECT(MallocExtension_VerifyMallocMemory(p));
  EXPECT(MallocExtension_VerifyNewMemory(p));
  EXPECT(MallocExtension_VerifyArrayNewMemory(p));
  EXPECT(!MallocExtension_VerifyMallocMemory(p + 1));
  EXPECT(MallocExtension_MallocMemoryStats(&blocks, &total, histogram));
  EXPECT(blocks > 0 && total >= 5000000 && histogram[22] >= 1);
  MallocExtension_GetStats(text, sizeof text);
  EXPECT(strstr(text, "Bytes in use by application") != NULL);
  tc_free(p);
  EXPECT(property("tcmalloc.pageheap_free_bytes") >= 5000000);
  MallocExtension_ReleaseToSystem(1 << 20);
  MallocExtension_ReleaseFreeMemory();
  EXPECT(property("tcmalloc.pageheap_free_bytes") < 5000000);
  EXPECT(MallocExtension_SetNumericProperty("tcmalloc.max_total_thread_cache_bytes", 1 << 20));
  EXPECT(property("tcmalloc.max_total_thread_cache_bytes") == 1 << 20);
  EXPECT(!MallocExtension_SetNumericProperty("generic.heap_size", 1));
  free(malloc(100));
  EXPECT(MallocExtension_GetThreadCacheSize() > 0);
  MallocExtension_MarkThreadTemporarilyIdle();
  MallocExtension_MarkThreadIdle();
  EXPECT(MallocExtension_GetThreadCacheSize() == 0);
  MallocExtension_MarkThreadBusy();
  tc_free(tc_calloc(10, 10));
  tc_cfree(tc_realloc(tc_memalign(64, 10), 100));
  int major = 0;
  EXPECT(strcmp(tc_version(&major, NULL, NULL), TC_VERSION_STRING) == 0 && major == 2);
  if (failures == 0) printf("gperftools_calls_c: fine\n");
  return failures != 0;
}
