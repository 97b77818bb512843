// An exercise of lesson 01; ring_all_reduce.cpp says what is asked for.
#pragma once

#include "common/comm/communicator.h"

namespace sc {

void ring_all_reduce(Communicator& comm, at::Tensor& t, at::Tensor& scratch);

}  // namespace sc
