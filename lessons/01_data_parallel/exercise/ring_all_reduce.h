// Exercise of lesson 01; what is asked for stands in ring_all_reduce.cpp.
#pragma once

#include "common/comm/communicator.h"

namespace sc {

void ring_all_reduce(Communicator& comm, at::Tensor& t, at::Tensor& scratch);

}  // namespace sc
