"""Small stand-ins for the rules that layers of MPICH and MVAPICH decide with by themselves."""

from __future__ import annotations

from typing import Any

Node = dict[str, Any]
SMP: Node = {"algorithm=MPIR_Bcast_intra_smp": {}}
BINOMIAL: Node = {"algorithm=MPIR_Bcast_intra_binomial": {}}
RING: Node = {"algorithm=MPIR_Bcast_intra_scatter_ring_allgather": {}}
DOUBLING: Node = {"algorithm=MPIR_Allreduce_intra_recursive_doubling": {}}
RABENSEIFNER: Node = {"algorithm=MPIR_Allreduce_intra_reduce_scatter_allgather": {}}
IN_PLACE: Node = {"algorithm=MPIR_Alltoall_intra_pairwise_sendrecv_replace": {}}
SCATTERED: Node = {"algorithm=MPIR_Alltoall_intra_scattered": {}}
PAIRWISE: Node = {"algorithm=MPIR_Alltoall_intra_pairwise": {}}
BRUCKS: Node = {"algorithm=MPIR_Alltoall_intra_brucks": {}}
GENERIC: Node = {
    "collective=bcast": {
        "comm_type=intra": {
            "comm_size<8": {
                "comm_hierarchy=parent": {"avg_msg_size<=0": SMP, "avg_msg_size=any": BINOMIAL},
                "comm_hierarchy=any": BINOMIAL,
            },
            "comm_size=pow2": {"avg_msg_size<=12288": BINOMIAL, "avg_msg_size=any": RING},
            "comm_size=any": RING,
        },
        "comm_type=inter": {"algorithm=MPIR_Bcast_inter_remote_send_local_bcast": {}},
    },
    "collective=allreduce": {
        "comm_type=intra": {
            "is_op_built_in=no": DOUBLING,
            "is_op_built_in=yes": {"count<pow2": DOUBLING, "count=any": RABENSEIFNER},
        },
        "comm_type=inter": {"algorithm=MPIR_Allreduce_inter_reduce_exchange_bcast": {}},
    },
    "collective=alltoall": {
        "comm_type=intra": {
            "is_sendbuf_inplace=yes": IN_PLACE,
            "is_sendbuf_inplace=no": {
                "comm_size<8": {"avg_msg_size<=32768": SCATTERED, "avg_msg_size=any": PAIRWISE},
                "comm_size=any": {"avg_msg_size<=256": BRUCKS, "avg_msg_size=any": PAIRWISE},
            },
        },
        "comm_type=inter": {"algorithm=MPIR_Alltoall_inter_pairwise_exchange": {}},
    },
    "collective=barrier": {"algorithm=MPIR_Barrier_intra_smp": {}},
}
DENSE: Node = {
    **GENERIC,
    "collective=allreduce": {
        "comm_type=intra": {
            "is_commutative=no": {"comm_avg_ppn<=2": DOUBLING, "comm_avg_ppn=any": RABENSEIFNER},
            "is_commutative=yes": RABENSEIFNER,
        },
        "comm_type=inter": {"algorithm=MPIR_Allreduce_inter_reduce_exchange_bcast": {}},
    },
    "collective=bcast": {
        "comm_type=intra": {
            "comm_size<=4": {
                "comm_avg_ppn<=1": {"avg_msg_size<=4096": BINOMIAL, "avg_msg_size=any": RING},
                "comm_avg_ppn=any": {"algorithm=MPIR_Bcast_intra_osu_pipelined": {}},
            },
            "comm_size=any": RING,
        },
        "comm_type=inter": {"algorithm=MPIR_Bcast_inter_remote_send_local_bcast": {}},
    },
}


def composition(collective: str, name: str) -> Node:
    """Return the leaf of a composition of the device layer."""
    return {f"composition=MPIDI_{collective}_intra_composition_{name}": {}}


BELOW: Node = {  # of the device layer
    "collective=bcast": {
        "comm_type=intra": {
            "comm_hierarchy=parent": {
                "comm_size<8": {"avg_msg_size=any": composition("Bcast", "alpha")},
                "comm_size=any": {
                    "avg_msg_size<12288": composition("Bcast", "alpha"),
                    "avg_msg_size=any": composition("Bcast", "gamma"),
                },
            },
            "comm_hierarchy=any": composition("Bcast", "gamma"),
        }
    },
    "collective=allreduce": {
        "comm_type=intra": {
            "comm_size=node_comm_size": composition("Allreduce", "gamma"),
            "comm_size=any": {
                "comm_hierarchy=parent": {
                    "is_commutative=yes": {"avg_msg_size=any": composition("Allreduce", "alpha")},
                    "is_commutative=no": composition("Allreduce", "beta"),
                },
                "comm_hierarchy=any": composition("Allreduce", "beta"),
            },
        }
    },
    "collective=alltoall": {"comm_type=intra": composition("Alltoall", "beta")},
    "collective=barrier": {"comm_type=intra": composition("Barrier", "alpha")},
}
SHARED: Node = {  # of the shared memory layer
    f"collective={name}": {
        "comm_type=intra": {
            "is_multi_threaded=no": {f"algorithm=MPIDI_POSIX_mpi_{name}_release_gather": {}}
        }
    }
    for name in ("bcast", "allreduce")
}
