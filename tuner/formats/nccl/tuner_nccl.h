/* Ask the rules of a tuning table which algorithm a call of NCCL is to take, in NCCL 2.31 and later.
 *
 * `tuner nccl install` puts this file beside the rules and the compiled library, with which a program
 * is linked. The library decides as the tuner plugin that it also is. All ranks must have the same
 * rules. Functions may be called by several threads, on one communicator by one at a time.
 */
#ifndef TUNER_NCCL_H
#define TUNER_NCCL_H

#include <nccl.h>

#if NCCL_VERSION_CODE < NCCL_VERSION(2, 31, 0)
#error "tuner_nccl.h needs ncclCollConfig_t, which NCCL has from version 2.31 on"
#endif

#ifdef __cplusplus
extern "C" {
#endif

enum tuner_nccl_collective {
    TUNER_NCCL_BROADCAST,
    TUNER_NCCL_REDUCE,
    TUNER_NCCL_ALLGATHER,
    TUNER_NCCL_REDUCESCATTER,
    TUNER_NCCL_ALLREDUCE
};

/* Called by the functions below, which a program uses. */
int tuner_nccl_follow_ranks(const void *comm, int ranks, int nodes);
const char *tuner_nccl_select(const void *comm, int collective, size_t nbytes, int *channels);

/* Stop following rules; to be called before the communicator is destroyed. */
void tuner_nccl_forget(const void *comm);

/* Read the rules for a communicator whose ranks are spread evenly over `nodes` nodes. Return their
 * number; -1 where none can be followed. The first reason of a process is printed to standard
 * error, with NCCL_DEBUG=INFO also that NCCL_ALGO or NCCL_PROTO decides. */
static inline int tuner_nccl_follow(ncclComm_t comm, int nodes) {
    int ranks = 0;
    return ncclCommCount(comm, &ranks) == ncclSuccess ? tuner_nccl_follow_ranks(comm, ranks, nodes)
                                                      : -1;
}

/* Fill the algorithm, and the largest number of channels if the rule has one, into a configuration
 * that was set to NCCL_COLLCONFIG_INITIALIZER. `nbytes` are those of the whole buffer: in an allgather
 * or reduce-scatter of the parts of all ranks. Return 1; 0 where no rule is for the call, which leaves
 * the configuration as it is. NCCL chooses itself where it cannot run what is selected. */
static inline int tuner_nccl_config(ncclComm_t comm, enum tuner_nccl_collective collective,
                                    size_t nbytes, ncclCollConfig_t *config) {
    int channels = 0;
    const char *selection = tuner_nccl_select(comm, collective, nbytes, &channels);
    if (selection == NULL) return 0;
    config->algSelection = selection;
    config->forceAlgSelection = 0;
    if (channels > 0) config->maxCTAs = channels;
    return 1;
}

#ifdef __cplusplus
}
#endif

#endif
