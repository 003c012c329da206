/* bench_himeno PADDING [ITERATIONS]: a 19-point Jacobi solver of Poisson's equation, as MFLOPS.

   Has the shape of the Himeno benchmark, size M: fourteen arrays of 128 x 128 x 256 floats, one
   malloc each, read in step and written in step. The array number i starts PADDING * i bytes into
   its block. Where an allocator starts large blocks at page boundaries and nothing is padded, the
   arrays' elements share cache sets, and loads wait for stores that they only appear to overlap.

   Prints the rate, the arrays' addresses, and how often a load was blocked by the low 12 bits of
   a store's address, or null where this processor does not count it. */
#define _GNU_SOURCE
#include <linux/perf_event.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
#if defined(__x86_64__)
#include <cpuid.h>
#endif

enum { kI = 128, kJ = 128, kK = 256, kPlane = kJ * kK, kCells = kI * kPlane };
enum {
  kA0,
  kA1,
  kA2,
  kA3,
  kB0,
  kB1,
  kB2,
  kC0,
  kC1,
  kC2,
  kPressure,
  kBound,
  kSource,
  kNext,
  kArrays
};

static const double kFlopsPerCell = 34;
static const float kRelaxation = 0.8F;

struct Array {
  void* block;
  float* cells;
};

static double now(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
}

static size_t number(const char* text, const char* name) {
  char* end = NULL;
  const unsigned long value = strtoul(text, &end, 10);
  if (*text == '\0' || *text == '-' || *end != '\0' || value > 1u << 20) {
    fprintf(stderr, "%s must be a number up to 1048576: %s\n", name, text);
    exit(2);
  }
  return value;
}

/* The raw event for loads blocked by an aliasing store (Intel: LD_BLOCKS_PARTIAL.ADDRESS_ALIAS,
   from Golden Cove on LD_BLOCKS.ADDRESS_ALIAS), or 0. */
static uint64_t alias_event(void) {
#if defined(__x86_64__)
  unsigned a = 0, b = 0, c = 0, d = 0;
  if (!__get_cpuid(0, &a, &b, &c, &d)) return 0;
  if (b != signature_INTEL_ebx || d != signature_INTEL_edx || c != signature_INTEL_ecx) return 0;
  __get_cpuid(1, &a, &b, &c, &d);
  const unsigned family = (a >> 8) & 0xf;
  const unsigned model = ((a >> 4) & 0xf) | ((a >> 12) & 0xf0);
  if (family != 6) return 0;
  switch (model) {
    case 0x8f: /* Sapphire Rapids */
    case 0xcf: /* Emerald Rapids */
    case 0x97: /* Alder Lake */
    case 0x9a:
    case 0xb7: /* Raptor Lake */
    case 0xba:
    case 0xbf:
    case 0xad: /* Granite Rapids */
      return 0x0403;
    default:
      return 0x0107;
  }
#else
  return 0;
#endif
}

/* A stopped counter, or -1. */
static int open_alias_counter(void) {
  struct perf_event_attr attributes;
  memset(&attributes, 0, sizeof(attributes));
  attributes.type = PERF_TYPE_RAW;
  attributes.size = sizeof(attributes);
  attributes.config = alias_event();
  attributes.disabled = 1;
  attributes.exclude_kernel = 1;
  attributes.exclude_hv = 1;
  if (attributes.config == 0) return -1;
  return (int)syscall(SYS_perf_event_open, &attributes, 0, -1, -1, PERF_FLAG_FD_CLOEXEC);
}

static struct Array make_array(size_t offset) {
  struct Array array = {malloc(sizeof(float) * kCells + offset), NULL};
  if (array.block == NULL) {
    fprintf(stderr, "out of memory\n");
    exit(1);
  }
  array.cells = (float*)((char*)array.block + offset);
  return array;
}

static void fill(float* cells, float value) {
  for (size_t i = 0; i < kCells; ++i) cells[i] = value;
}

static void initialise(struct Array* arrays) {
  static const float kValues[kArrays] = {1, 1, 1, 1.0F / 6, 0, 0, 0, 1, 1, 1, 0, 1, 0, 0};
  for (int n = 0; n < kArrays; ++n) fill(arrays[n].cells, kValues[n]);
  for (size_t i = 0; i < kI; ++i) {
    const float pressure = (float)(i * i) / (float)((kI - 1) * (kI - 1));
    for (size_t n = 0; n < kPlane; ++n) arrays[kPressure].cells[i * kPlane + n] = pressure;
  }
}

/* One sweep over the inner cells into kNext; returns the squared residual. */
static float sweep(const struct Array* arrays) {
  const float *a0 = arrays[kA0].cells, *a1 = arrays[kA1].cells, *a2 = arrays[kA2].cells;
  const float *a3 = arrays[kA3].cells, *b0 = arrays[kB0].cells, *b1 = arrays[kB1].cells;
  const float *b2 = arrays[kB2].cells, *c0 = arrays[kC0].cells, *c1 = arrays[kC1].cells;
  const float *c2 = arrays[kC2].cells, *p = arrays[kPressure].cells;
  const float *bound = arrays[kBound].cells, *source = arrays[kSource].cells;
  float* next = arrays[kNext].cells;
  float residual = 0;
  for (ptrdiff_t i = 1; i < kI - 1; ++i) {
    for (ptrdiff_t j = 1; j < kJ - 1; ++j) {
      const ptrdiff_t row = i * kPlane + j * kK;
      for (ptrdiff_t n = row + 1; n < row + kK - 1; ++n) {
        const float sum = a0[n] * p[n + kPlane] + a1[n] * p[n + kK] + a2[n] * p[n + 1] +
                          b0[n] * (p[n + kPlane + kK] - p[n + kPlane - kK] - p[n - kPlane + kK] +
                                   p[n - kPlane - kK]) +
                          b1[n] * (p[n + kK + 1] - p[n - kK + 1] - p[n + kK - 1] + p[n - kK - 1]) +
                          b2[n] * (p[n + kPlane + 1] - p[n - kPlane + 1] - p[n + kPlane - 1] +
                                   p[n - kPlane - 1]) +
                          c0[n] * p[n - kPlane] + c1[n] * p[n - kK] + c2[n] * p[n - 1] + source[n];
        const float change = (sum * a3[n] - p[n]) * bound[n];
        residual += change * change;
        next[n] = p[n] + kRelaxation * change;
      }
    }
  }
  return residual;
}

static void take_over(const struct Array* arrays) {
  for (size_t i = 1; i < kI - 1; ++i) {
    for (size_t j = 1; j < kJ - 1; ++j) {
      const size_t row = i * kPlane + j * kK + 1;
      memcpy(&arrays[kPressure].cells[row], &arrays[kNext].cells[row], sizeof(float) * (kK - 2));
    }
  }
}

int main(int argc, char** argv) {
  if (argc < 2 || argc > 3) {
    fprintf(stderr, "usage: bench_himeno PADDING [ITERATIONS]\n");
    return 2;
  }
  const size_t padding = number(argv[1], "PADDING");
  const size_t iterations = argc > 2 ? number(argv[2], "ITERATIONS") : 8;
  struct Array arrays[kArrays];
  for (size_t n = 0; n < kArrays; ++n) arrays[n] = make_array(padding * n);
  initialise(arrays);

  const int counter = open_alias_counter();
  float residual = sweep(arrays); /* warms caches and translations */
  take_over(arrays);
  if (counter >= 0) ioctl(counter, PERF_EVENT_IOC_ENABLE, 0);
  const double start = now();
  for (size_t n = 0; n < iterations; ++n) {
    residual = sweep(arrays);
    take_over(arrays);
  }
  const double seconds = now() - start;
  uint64_t events = 0;
  const int counted = counter >= 0 && read(counter, &events, sizeof(events)) == sizeof(events);

  const double cells = (double)(kI - 2) * (kJ - 2) * (kK - 2) * (double)iterations;
  printf("{\"seconds\": %.6f, \"mflops\": %.1f, \"residual\": %.9g, \"alias_events\": ", seconds,
         cells * kFlopsPerCell / seconds / 1e6, (double)residual);
  if (counted) {
    printf("%llu", (unsigned long long)events);
  } else {
    printf("null");
  }
  printf(", \"stored\": [%d, %d], \"addresses\": [", kPressure, kNext);
  for (int n = 0; n < kArrays; ++n)
    printf("%s%llu", n == 0 ? "" : ", ", (unsigned long long)(uintptr_t)arrays[n].cells);
  printf("]}\n");
  for (int n = 0; n < kArrays; ++n) free(arrays[n].block);
  return 0;
}
