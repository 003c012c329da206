/* The interface of gperftools 2.10 to its malloc, served by Larder: the same class, the same order
 * of virtual functions, the same mangled names, so that programs compiled against either header run
 * on either library. docs/tasks/move-from-tcmalloc.md says what each call does here.
 *
 * Any thread may call anything. Sizes are in bytes. Needs libstdc++ (strings and vectors cross the
 * interface); C programs use malloc_extension_c.h.
 */
#ifndef BASE_MALLOC_EXTENSION_H_
#define BASE_MALLOC_EXTENSION_H_

#include <stddef.h>
#include <stdint.h>

#include <string>
#include <vector>

#ifndef PERFTOOLS_DLL_DECL
#define PERFTOOLS_DLL_DECL
#endif

static const int kMallocHistogramSize = 64;

typedef std::string MallocExtensionWriter;

namespace base {
struct MallocRange;
}

/* A source of memory of the program's own. Alloc gives at least size bytes at a multiple of
 * alignment, and says in *actual_size how many, or NULL. It is called with locks of the heap held:
 * it may allocate, but not wait for who does, nor throw. It is never asked to take memory back. */
class PERFTOOLS_DLL_DECL SysAllocator {
 public:
  SysAllocator() {}
  virtual ~SysAllocator();
  virtual void* Alloc(size_t size, size_t* actual_size, size_t alignment) = 0;
};

class PERFTOOLS_DLL_DECL MallocExtension {
 public:
  virtual ~MallocExtension();

  /* Does nothing: Larder needs no start. */
  static void Initialize();

  /* Whether the allocator's own descriptors agree with each other (VerifyAllMemory), and whether p
   * is the address of an object in use. Contents are not looked at. A null pointer is good. */
  virtual bool VerifyAllMemory();
  virtual bool VerifyNewMemory(const void* p);
  virtual bool VerifyArrayNewMemory(const void* p);
  virtual bool VerifyMallocMemory(const void* p);

  /* Objects in use, their bytes, and how many there are of 2^i up to 2^(i + 1) bytes. Blocks beyond
   * 1 MiB count by their mean size. */
  virtual bool MallocMemoryStats(int* blocks, size_t* total, int histogram[kMallocHistogramSize]);

  /* For people to read; always terminated. buffer_length > 0. */
  virtual void GetStats(char* buffer, int buffer_length);

  /* A profile in the text form that pprof reads, or a comment that says why there is none: what is
   * in use, and what of it was not at the start or the last larder_profile_mark(). */
  virtual void GetHeapSample(MallocExtensionWriter* writer);
  virtual void GetHeapGrowthStacks(MallocExtensionWriter* writer);

  /* Calls func for each range of the heap, blocks beyond 1 MiB excepted. func may allocate. */
  typedef void(RangeFunction)(void*, const base::MallocRange*);
  virtual void Ranges(void* arg, RangeFunction func);

  /* False: no such property, or it cannot be set. docs/tasks/move-from-tcmalloc.md lists them. */
  virtual bool GetNumericProperty(const char* property, size_t* value);
  virtual bool SetNumericProperty(const char* property, size_t value);

  /* The calling thread will not allocate for a while: what it keeps goes to the others. Busy needs
   * not be called. */
  virtual void MarkThreadIdle();
  virtual void MarkThreadBusy();

  /* The source that new memory for objects comes from; at first Larder's own, which others may fall
   * back to. NULL sets that again. What a source has given stays in use: it must not go away. */
  virtual SysAllocator* GetSystemAllocator();
  virtual void SetSystemAllocator(SysAllocator* a);

  /* Free memory goes back to the system: about num_bytes, or all of it. */
  virtual void ReleaseToSystem(size_t num_bytes);
  virtual void ReleaseFreeMemory();

  /* How fast free memory goes back by itself: 1 unless set, 0 never, 10 fast. */
  virtual void SetMemoryReleaseRate(double rate);
  virtual double GetMemoryReleaseRate();

  /* What an object of this size takes up at least; what the one at p has room for (0 for NULL and
   * what is not Larder's). */
  virtual size_t GetEstimatedAllocatedSize(size_t size);
  virtual size_t GetAllocatedSize(const void* p);

  enum Ownership { kUnknownOwnership = 0, kOwned, kNotOwned };
  virtual Ownership GetOwnership(const void* p);

  static MallocExtension* instance();
  /* Does nothing: another allocator that is loaded beside Larder does not become the instance. */
  static void Register(MallocExtension* implementation);

  struct FreeListInfo {
    size_t min_object_size;
    size_t max_object_size;
    size_t total_bytes_free;
    const char* type; /* "tcmalloc.thread", ".central", ".page", ".page_unmapped", ".large" */
  };
  virtual void GetFreeListSizes(std::vector<FreeListInfo>* v);

  /* The same as entries of count, bytes, depth and depth addresses, ended by a count of 0, in an
   * array to be freed by delete[]; NULL where stacks cannot be walked. They are estimates of all,
   * not samples that would have to be scaled: the period is 1, or 0 if no samples are taken. */
  virtual void** ReadStackTraces(int* sample_period);
  virtual void** ReadHeapGrowthStackTraces();

  /* What is free in the calling thread's slabs. */
  virtual size_t GetThreadCacheSize();
  /* As MarkThreadIdle. */
  virtual void MarkThreadTemporarilyIdle();
};

namespace base {

struct MallocRange {
  enum Type { INUSE, FREE, UNMAPPED, UNKNOWN };
  uintptr_t address;
  size_t length;
  Type type;
  double fraction; /* of the range that is in use; 0 unless INUSE */
};

}  // namespace base

#endif  // BASE_MALLOC_EXTENSION_H_
