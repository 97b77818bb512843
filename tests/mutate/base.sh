#!/usr/bin/env bash
# Mutants of the sums, messages, rows and bytes of lessons 01-10 and beneath them, or the lessons' planted faults, against the tests.
#   usage  tests/mutate/base.sh [--build DIR] [--faults] [flags of mutate.py, for example --sample 20]
#     --build DIR   a build folder of the cpu preset, up to date; default build/cpu
#   exit   as mutate.py: 0 if at least 90 % of the mutants die, or every fault is noticed
# A mutant compiles one file, links one or two tests with the objects of DIR, and runs them: some seconds.
set -euo pipefail
CDPATH='' cd "$(dirname "${BASH_SOURCE[0]}")/../.."

build_dir=build/cpu
if [[ ${1:-} == --build ]]; then
  build_dir=$2
  shift 2
fi
build_dir=$(CDPATH='' cd "$build_dir" && pwd)
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMP_NUM_THREADS=1
export CCACHE_BASEDIR=$PWD/build/mutate_base # another copy of the repository finds the same objects

# Mutants may allocate for ever: 8 GB of address space beyond what LibTorch maps.
test='ulimit -v 12000000; bash build/mutant/run.sh "{filter}"'
common=(--build "python3 '$PWD/tests/mutate/relink.py' '$PWD' '$build_dir'" --copy common lessons pipedream --timeout 240 --work build/mutate_base)

if [[ ${1:-} == --faults ]]; then
  shift
  exec python3 tests/mutate/mutate.py "${common[@]}" --test "$test" --patches 'tests/faults/[01][0-9]_*.patch' "$@"
fi
files=(common/watch/comm_op.{h,cpp} common/comm/{op_check.cpp,rank_sum.cpp,local_communicator.cpp,mpi/mpi_exchange.cpp}
  common/memory/{ledger,allocator_witness}.cpp common/data/{sampler,rows}.cpp common/strategy/{owned_slice,passes,state_plan}.cpp
  lessons/01_data_parallel/{data_parallel,data_parallel_{memory,plan},buckets}.cpp lessons/02_zero1/{zero1,zero1_{memory,plan}}.cpp
  lessons/03_zero2/{grad_buffers,grad_bucket,shard_buckets,zero2,zero2_{memory,plan}}.cpp lessons/04_zero3/{zero3,zero3_{buffers,memory,plan},persist_below}.cpp
  common/offload/{host_optimizer,host_plan,unit_buffers,update_scalars}.cpp common/offload/update_clock.h lessons/05_offload/{offload,offload_{memory,plan,state}}.cpp
  lessons/06_infinity/{infinity,infinity_{memory,plan,state},param_home,params_on_disk,state_file,states_on_disk}.cpp
  common/pipeline/{messages,share,slots,split,stage,stage_memory,stage_plan}.cpp lessons/07_pipeline/{pipeline,pipeline_{memory,plan},proven}.cpp
  lessons/08_weight_versions/{ring.h,weight_versions.cpp,weight_versions_memory.cpp,weight_versions_plan.cpp,endless.cpp}
  common/model/{param_layout,part_plan}.cpp lessons/10_tensor_parallel/{tensor_lane,tensor_layers,tensor_parallel,tensor_parallel_memory,tensor_parallel_plan}.cpp
  lessons/11_combined/{combined,combined_memory,combined_plan,tensor_stage}.cpp)
exec python3 tests/mutate/mutate.py "${common[@]}" --test "${test/'{filter}'/*}" --names rank,unit --accept tests/mutate/base_equivalent.txt "$@" "${files[@]}"
