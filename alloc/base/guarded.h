// Lock annotations for clang's -Wthread-safety (scripts/lint); empty for other compilers. The
// caller of a LARDER_REQUIRES function holds the lock.
#pragma once

#ifdef __clang__
#define LARDER_SAFETY(attribute) __attribute__((attribute))
#else
#define LARDER_SAFETY(attribute)
#endif

#define LARDER_CAPABILITY LARDER_SAFETY(capability("lock"))
#define LARDER_SCOPED LARDER_SAFETY(scoped_lockable)
#define LARDER_GUARDED_BY(lock) LARDER_SAFETY(guarded_by(lock))
#define LARDER_REQUIRES(lock) LARDER_SAFETY(requires_capability(lock))
#define LARDER_EXCLUDES(lock) LARDER_SAFETY(locks_excluded(lock))
#define LARDER_ACQUIRE(...) LARDER_SAFETY(acquire_capability(__VA_ARGS__))
#define LARDER_RELEASE(...) LARDER_SAFETY(release_capability(__VA_ARGS__))
#define LARDER_RETURNS(lock) LARDER_SAFETY(lock_returned(lock))
// For locking that clang cannot follow, with the reason beside it.
#define LARDER_UNCHECKED LARDER_SAFETY(no_thread_safety_analysis)
