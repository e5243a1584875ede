/* A management library with three cards: 24 GiB with 8 free, 80 GiB with 70 free, and one that does not answer. */
#include <string.h>
#include <stdio.h>
#define GIB (1ULL << 30)
struct memory { unsigned long long total, free, used; };
static const struct memory CARDS[2] = {{24 * GIB, 8 * GIB, 16 * GIB}, {80 * GIB, 70 * GIB, 10 * GIB}};
int nvmlInit_v2(void) { return 0; }
int nvmlShutdown(void) { return 0; }
int nvmlDeviceGetCount_v2(unsigned *count) { *count = 3; return 0; }
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **device) {
  if (index > 1) return 15; /* lost */
  *device = (void *)&CARDS[index]; return 0;
}
int nvmlDeviceGetUUID(void *device, char *text, unsigned size) {
  if (!device) return 2;
  snprintf(text, size, "GPU-%d", (int)((const struct memory *)device - CARDS)); return 0;
}
int nvmlDeviceGetName(void *device, char *text, unsigned size) {
  if (!device) return 2;
  snprintf(text, size, "Test card"); return 0;
}
int nvmlDeviceGetMemoryInfo(void *device, struct memory *memory) {
  if (!device) return 2;
  memcpy(memory, device, sizeof *memory); return 0;
}
