// A communication library that only lends memory, and counts what it lent.
#define _POSIX_C_SOURCE 200112L
#include <stddef.h>
#include <stdlib.h>

#define SHOWN __attribute__((visibility("default")))

static int allocations = 0;
static int frees = 0;

SHOWN int ncclMemAlloc(void** data, size_t bytes) {
  ++allocations;
  return posix_memalign(data, 4096, bytes) == 0 ? 0 : 1;
}

SHOWN int ncclMemFree(void* data) {
  ++frees;
  free(data);
  return 0;
}

SHOWN int double_allocations(void) { return allocations; }
SHOWN int double_frees(void) { return frees; }
