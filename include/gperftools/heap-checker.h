/* The interface of gperftools 2.10 to its leak checker, served by Larder: the same classes, sizes
 * and mangled names, so that programs compiled against either header run on either library. What
 * is a leak, and what HEAPCHECK turns on, is documented in docs/reference/leak-checker.md.
 *
 * Any thread may call anything; one check runs at a time. Without HEAPCHECK every call returns at
 * once, and no check fails. Sizes are in bytes.
 */
#ifndef BASE_HEAP_CHECKER_H_
#define BASE_HEAP_CHECKER_H_

#include <stdint.h>
#include <sys/types.h>

#ifndef PERFTOOLS_DLL_DECL
#define PERFTOOLS_DLL_DECL
#endif

/* Checks what is allocated from its construction on, by any thread. */
class PERFTOOLS_DLL_DECL HeapLeakChecker {
 public:
  /* Whether checkers that are made now check: HEAPCHECK was set, and this is no child of fork. */
  static bool IsActive();

  /* Of the whole program; NULL unless HEAPCHECK wants that checked. The same ever after. */
  static HeapLeakChecker* GlobalChecker();
  /* Checks the whole program now. False: there are leaks, which have been reported on stderr. */
  static bool NoGlobalLeaks();
  /* The program is not checked when it ends. */
  static void CancelGlobalCheck();

  /* The name is in the report. It is copied. */
  explicit HeapLeakChecker(const char* name);
  /* Ends the process unless a check was made, if it is active. */
  ~HeapLeakChecker();

  /* False: of what was allocated since the construction, something can be reached no more; reported
   * on stderr. All are the same. */
  bool NoLeaks() { return DoNoLeaks(DO_NOT_SYMBOLIZE); }
  bool QuickNoLeaks() { return NoLeaks(); }
  bool BriefNoLeaks() { return NoLeaks(); }
  bool SameHeap() { return NoLeaks(); }
  bool QuickSameHeap() { return NoLeaks(); }
  bool BriefSameHeap() { return NoLeaks(); }

  /* What the last check has found. They end the process if there was none, if it is active. */
  ssize_t BytesLeaked() const;
  ssize_t ObjectsLeaked() const;

  /* What its thread allocates while it lives is no leak, nor is what can be reached from there. */
  class Disabler {
   public:
    Disabler();
    ~Disabler();

   private:
    Disabler(const Disabler&);
    void operator=(const Disabler&);
  };

  /* The object that has the address, and what can be reached from it, is no leak. Nothing if there
   * is no object. Returns the pointer. */
  template <typename T>
  static T* IgnoreObject(T* ptr) {
    DoIgnoreObject(static_cast<const void*>(const_cast<const T*>(ptr)));
    return ptr;
  }
  /* Undoes this; ends the process where it was not done, if it is active. */
  static void UnIgnoreObject(const void* ptr);

 private:
  enum ShouldSymbolize { SYMBOLIZE, DO_NOT_SYMBOLIZE };
  bool DoNoLeaks(ShouldSymbolize should_symbolize);
  static void DoIgnoreObject(const void* ptr);

  /* gperftools' own library starts its checker by these; where both are loaded, it is not to. */
  friend void HeapLeakChecker_BeforeConstructors();
  friend void HeapLeakChecker_InternalInitStart();
  friend void HeapLeakChecker_RunHeapCleanups();
  friend void HeapLeakChecker_AfterDestructors();

  HeapLeakChecker(const HeapLeakChecker&);
  void operator=(const HeapLeakChecker&);

  char* name_; /* NULL: it checks nothing */
  uint64_t since_us_;
  ssize_t bytes_leaked_;
  ssize_t objects_leaked_;
  bool has_checked_;
  void* unused_[2]; /* gperftools' has the size */
};

/* A pointer that leads nowhere for the checker. */
template <class T>
class HiddenPointer {
 public:
  explicit HiddenPointer(T* t) : masked_t_(reinterpret_cast<uintptr_t>(t) ^ kHideMask) {}
  T* get() const { return reinterpret_cast<T*>(masked_t_ ^ kHideMask); }

 private:
  static const uintptr_t kHideMask = static_cast<uintptr_t>(0xF03A5F7BF03A5F7Bll);
  uintptr_t masked_t_;
};

/* For the macro below: runs the function before the whole program is checked. */
class PERFTOOLS_DLL_DECL HeapCleaner {
 public:
  typedef void (*void_function)(void);
  explicit HeapCleaner(void_function f);
  static void RunHeapCleanups();
};

#define REGISTER_HEAPCHECK_CLEANUP(name, body)                            \
  namespace {                                                             \
  void heapcheck_cleanup_##name() { body; }                               \
  static HeapCleaner heapcheck_cleaner_##name(&heapcheck_cleanup_##name); \
  }

#endif  // BASE_HEAP_CHECKER_H_
