// Exercise of lesson 01; what is asked for stands in deadlock.cpp.
#pragma once

#include "common/comm/communicator.h"

namespace sc {

void pass_right(Communicator& comm, const at::Tensor& mine, at::Tensor& theirs);

}  // namespace sc
