"""Rows of result tables, as PICO writes them."""

from __future__ import annotations

HEAD = (
    "system,run,collective,nodes,ppn,ranks,lib,lib_version,gpu,algorithm,size_bytes,n_iter,min_us,"
    "median_us,p90_us"
)


ROW = "leo,r1,allgather,4,2,8,OMPI,4.1.6,no,ring_ompi,64,1000,4.5,5.5,6.5"


SUMMARY = (
    "collective_type,array_dim,buffer_size,algo_name,datatype,mean,median,min,max,nnodes,"
    "tasks_per_node,n_iter,system,timestamp,CUDA,mpi_lib,mpi_lib_version"
)


SUMMARIZED = (
    "ALLREDUCE,16,64,default_ompi,int32,6000,5500.0,4500,9000,4,2,800,leo,t1,True,OMPI,4.1.6"
)


ITERATIONS = "highest,rank0,rank1\n" + "".join(
    f"{n},1,{n}\n" for n in (9000, 1000, 3000, 2000, 4000)
)
