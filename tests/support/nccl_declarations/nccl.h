/* What tuner_nccl.h and our example need of NCCL 2.31's nccl.h, in this file's own words: the real one
 * needs CUDA's headers. */
#ifndef NCCL_H_
#define NCCL_H_

#include <limits.h>
#include <stddef.h>
#include <stdint.h>

#define NCCL_VERSION_CODE 23102
#define NCCL_VERSION(major, minor, patch) ((major) * 10000 + (minor) * 100 + (patch))
#define NCCL_COLLCONFIG_INITIALIZER \
    {sizeof(ncclCollConfig_t), 0xcafebeefu, NCCL_VERSION_CODE, NULL, INT_MIN, INT_MIN, INT_MIN, \
     INT_MIN, NULL, 1, INT_MIN, 0}

typedef struct ncclComm *ncclComm_t;
typedef struct CUstream_st *cudaStream_t;
typedef enum { ncclSuccess = 0, ncclInvalidArgument = 4 } ncclResult_t;
typedef enum { ncclFloat = 7 } ncclDataType_t;
typedef enum { ncclSum = 0 } ncclRedOp_t;
typedef struct {
    size_t size;
    unsigned int magic, version;
    void *ext;
    int minCTAs, maxCTAs, nvlsCTAs, cgaClusterSize;
    const char *algSelection;
    int forceAlgSelection, CTAPolicy;
    uint64_t userProfilerTag;
} ncclCollConfig_t;

ncclResult_t ncclCommCount(const ncclComm_t comm, int *count);
ncclResult_t ncclAllReduceConfig(const void *sent, void *received, size_t count,
                                 ncclDataType_t type, ncclRedOp_t op, ncclComm_t comm,
                                 cudaStream_t stream, const ncclCollConfig_t *config);
#endif
