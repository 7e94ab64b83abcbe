/* A driver of devices without devices: memory of the host on which a program must not work. It has
 * the one function of libcuda.so.1 by which libraries find out where an address is. */

#define _GNU_SOURCE
#include <stddef.h>
#include <stdint.h>
#include <sys/mman.h>

enum { BYTES = 1 << 24, MEMORY_TYPE = 2, DEVICE = 2, INVALID_VALUE = 1 };
static char *memory;
static size_t used;

/* Return memory of the device; a page apart from any other. */
void *allocate_on_device(size_t nbytes)
{
    if (!memory)
        memory = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    void *made = memory + used;
    used += (nbytes / 4096 + 1) * 4096;
    return used <= BYTES ? made : NULL;
}

/* Let the host work on the memory of the device, or end it where it does. */
void open_device(int is_open)
{
    mprotect(memory, BYTES, is_open ? PROT_READ | PROT_WRITE : PROT_NONE);
}

int cuPointerGetAttribute(unsigned *value, int attribute, uintptr_t address)
{
    const uintptr_t first = (uintptr_t)memory;
    if (attribute != MEMORY_TYPE || address < first || address >= first + BYTES)
        return INVALID_VALUE;
    *value = DEVICE;
    return 0;
}
