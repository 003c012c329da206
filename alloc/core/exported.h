// How the malloc family is exported. With LARDER_PREFIXED the functions are larder_malloc,
// larder_free and so on, and replace nothing of the process's own malloc.
#pragma once

#ifdef LARDER_PREFIXED
#define LARDER_NAME(name) larder_##name
#else
#define LARDER_NAME(name) name
#endif
#define LARDER_EXPORT extern "C" __attribute__((visibility("default")))
// Aliases of a function of this file: another exported name, and a name for the library alone.
#define LARDER_ALIAS(name) __attribute__((visibility("default"), alias(#name), copy(name)))
#define LARDER_OWN(name) __attribute__((visibility("hidden"), alias(#name), copy(name)))
