#!/usr/bin/env bash
# Mutants of the sums, messages, rows and bytes of all lessons but 00 and beneath them, or the lessons'
# planted faults, against the tests.
#   usage  tests/mutate/base.sh [--build DIR] [--faults] [flags of mutate.py, for example --sample 20]
#     --build DIR   a build folder of the cpu preset, up to date; default build/cpu
#   exit   as mutate.py: 0 if at least 90 % of the mutants die, or every fault is noticed
# A mutant compiles one file, links one or two tests with the objects of DIR, and runs them: some seconds.
set -euo pipefail
shopt -s extglob
CDPATH='' cd "$(dirname "${BASH_SOURCE[0]}")/../.."

build_dir=build/cpu
if [[ ${1:-} == --build ]]; then
  build_dir=$2
  shift 2
fi
build_dir=$(CDPATH='' cd "$build_dir" && pwd)
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMP_NUM_THREADS=1
export CCACHE_BASEDIR=$PWD/build/mutate_base # another copy of the repository finds the same objects

# Mutants may allocate for ever, so they get 8 GB of address space beyond what LibTorch maps.
test='ulimit -v 12000000; bash build/mutant/run.sh "{filter}"'
common=(--build "python3 '$PWD/tests/mutate/relink.py' '$PWD' '$build_dir'" --copy common lessons pipedream
  --timeout 240 --work build/mutate_base)

if [[ ${1:-} == --faults ]]; then
  shift
  exec python3 tests/mutate/mutate.py "${common[@]}" --test "$test" \
    --patches 'tests/faults/[01][0-9]_*.patch' "$@"
fi
# Files of lessons 06 and 08 that only report (step_clock, versions_read) have no mutants, nor has in_flight,
# which puts work in flight into a checkpoint.
files=(common/watch/comm_op.{h,cpp}
  common/comm/{op_check.cpp,rank_sum.cpp,local_communicator.cpp,mpi/mpi_exchange.cpp}
  common/memory/{ledger,allocator_witness}.cpp
  common/data/{sampler,rows}.cpp
  common/strategy/{owned_slice,passes,state_plan}.cpp
  common/offload/{host_optimizer,host_plan,host_strategy,update_scalars}.cpp
  common/offload/update_clock.h
  common/pipeline/{messages,share,slots,split,stage,stage_memory,stage_plan}.cpp
  common/model/{context_cut,context_plan,hop_attention,param_layout,part_plan}.cpp
  lessons/@(0[1-9]|[1-9][0-9])_*/!(main|step_clock|in_flight|versions_read).cpp
  lessons/08_weight_versions/ring.h)
exec python3 tests/mutate/mutate.py "${common[@]}" --test "${test/'{filter}'/*}" --names rank,unit \
  --accept tests/mutate/base_equivalent.txt "$@" "${files[@]}"
