/* Buffers in the memory of devices, which a CUDA- or ROCm-aware MPI library takes, while our own
 * code computes on the host's.
 *
 * The driver of the devices says where an address is. It may be loaded at any time, so that it is
 * looked for again whenever the process has loaded anything; without a driver there are no devices. */

#include "tuner.h"

#include <dlfcn.h>
#include <link.h>
#include <stdint.h>

enum { MEMORY_TYPE = 2 }; /* CU_ and HIP_POINTER_ATTRIBUTE_MEMORY_TYPE */
enum { DEVICE_TAG = 2 };  /* of messages from this rank to itself; schedules have another */

struct driver {
    const char *library;
    const char *query; /* NULL where it answers only to whoever has made its contexts */
    int host;          /* type of the host's memory; those of devices are greater */
};
/* CUmemorytype; hipMemoryType, which ROCm 6 has renumbered; Level Zero. */
static const struct driver drivers[] = {
    {"libcuda.so.1", "cuPointerGetAttribute", 1},
    {"libamdhip64.so.7", "hipPointerGetAttribute", 1},
    {"libamdhip64.so.6", "hipPointerGetAttribute", 1},
    {"libamdhip64.so.5", "hipPointerGetAttribute", 0},
    {"libze_loader.so.1", NULL, 0},
};

typedef int query_function(void *value, int attribute, uintptr_t address);
static _Atomic(query_function *) query; /* NULL without devices */
static atomic_int host_type;
static atomic_ullong n_loaded; /* libraries that had been loaded when a driver was looked for */

static int read_loaded(struct dl_phdr_info *info, size_t size, void *loaded)
{
    (void)size;
    *(unsigned long long *)loaded = info->dlpi_adds;
    return 1; /* the same for all libraries */
}

/* Take any buffer for one on a device, where nothing tells. */
static int suspect(void *value, int attribute, uintptr_t address)
{
    (void)attribute, (void)address;
    *(int *)value = 1;
    return 0;
}

static void find_driver(void)
{
    for (size_t i = 0; i < sizeof drivers / sizeof *drivers; i++) {
        void *library = dlopen(drivers[i].library, RTLD_LAZY | RTLD_NOLOAD);
        if (!library)
            continue;
        const char *name = drivers[i].query;
        query_function *found = name ? (query_function *)dlsym(library, name) : suspect;
        if (found) {
            atomic_store(&host_type, drivers[i].host);
            atomic_store(&query, found);
            return;
        }
    }
}

static bool is_on_device(query_function *ask, const void *buffer)
{
    int type = 0;
    return buffer && buffer != MPI_IN_PLACE && ask(&type, MEMORY_TYPE, (uintptr_t)buffer) == 0
           && type > atomic_load(&host_type);
}

/* Find out which buffers of a call are on a device. */
void find_devices(struct call *call)
{
    query_function *ask = atomic_load(&query);
    if (!ask) {
        unsigned long long loaded = 0;
        dl_iterate_phdr(read_loaded, &loaded);
        if (loaded == atomic_exchange(&n_loaded, loaded))
            return;
        find_driver();
        ask = atomic_load(&query);
    }
    call->sends_from_device = ask && is_on_device(ask, call->send);
    call->receives_on_device = ask && is_on_device(ask, call->receive);
}

/* Copy between a buffer on a device and one on the host, as the library does: in a message from this
 * rank to itself. A message of MPI_PACKED has any signature. */
int copy_by_message(const struct communicator *known, const void *from, MPI_Count count,
                    MPI_Datatype datatype, void *into, MPI_Count into_count,
                    MPI_Datatype into_datatype)
{
    return PMPI_Sendrecv(from, (int)count, datatype, known->rank, DEVICE_TAG, into,
                         (int)into_count, into_datatype, known->rank, DEVICE_TAG, known->messages,
                         MPI_STATUS_IGNORE);
}
