/* Buffers in the memory of devices, which a CUDA- or ROCm-aware MPI library takes, while our own
 * code computes on the host's.
 *
 * The driver of the devices says where an address is. It may be loaded at any time, so that it is
 * looked for again whenever the process has loaded anything; without one there are no devices. */

#include "tuner.h"

#include <dlfcn.h>
#include <link.h>
#include <stdint.h>

enum { MEMORY_TYPE = 2 }; /* CU_POINTER_ATTRIBUTE_MEMORY_TYPE */
enum { HOST_TYPE = 1 };   /* CU_MEMORYTYPE_HOST; those of devices are greater */
enum { DEVICE_TAG = 2 };  /* of messages from this rank to itself; schedules have another */

/* Drivers that cannot be asked: HIP remembers what is no address of a device as an error of the
 * program, and Level Zero answers only to whoever has made its contexts. */
static const char *const silent_drivers[] = {"libamdhip64.so.7", "libamdhip64.so.6",
                                             "libamdhip64.so.5", "libze_loader.so.1"};

typedef int query_function(void *value, int attribute, uintptr_t address);
static _Atomic(query_function *) query; /* NULL without devices */
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
    *(int *)value = HOST_TYPE + 1;
    return 0;
}

static void find_driver(void)
{
    void *library = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);
    if (library)
        atomic_store(&query, (query_function *)dlsym(library, "cuPointerGetAttribute"));
    for (size_t i = 0; i < sizeof silent_drivers / sizeof *silent_drivers; i++)
        if (dlopen(silent_drivers[i], RTLD_LAZY | RTLD_NOLOAD))
            atomic_store(&query, suspect);
}

static bool is_on_device(query_function *ask, const void *buffer)
{
    int type = 0;
    return buffer && buffer != MPI_IN_PLACE && ask(&type, MEMORY_TYPE, (uintptr_t)buffer) == 0
           && type > HOST_TYPE;
}

/* Find out which buffers of a call are on a device. */
void find_devices(struct call *call)
{
    unsigned long long loaded = 0;
    dl_iterate_phdr(read_loaded, &loaded);
    if (loaded != atomic_load(&n_loaded)) {
        find_driver();
        atomic_store(&n_loaded, loaded); /* threads that come meanwhile look for it, too */
    }
    query_function *ask = atomic_load(&query);
    call->sends_from_device = ask && is_on_device(ask, call->send);
    call->receives_on_device = ask && is_on_device(ask, call->receive);
}

/* Copy between a buffer on a device and one on the host, as the library does: in a message from
 * this rank to itself. A message of MPI_PACKED has any signature. */
int copy_by_message(const struct communicator *known, const void *from, MPI_Count count,
                    MPI_Datatype datatype, void *into, MPI_Count into_count,
                    MPI_Datatype into_datatype)
{
    return PMPI_Sendrecv(from, (int)count, datatype, known->rank, DEVICE_TAG, into,
                         (int)into_count, into_datatype, known->rank, DEVICE_TAG, known->messages,
                         MPI_STATUS_IGNORE);
}
