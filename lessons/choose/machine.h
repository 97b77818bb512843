// The machines that `choose` plans for: what they have, and at which share of it steps have been measured. No torch.
#pragma once

#include <optional>
#include <span>
#include <string>

#include "common/base/gpu_architectures.h"
#include "common/base/types.h"

namespace sc::choose {

/// What the vendor's data sheet says of one GPU. Rates are one way, in units a second.
struct Gpu {
  const char* name;
  Capability capability;
  bool has_run;             // whether lessons have been run on one
  double flops, flops_f32;  // dense products: bf16 (summed in fp32), fp32
  Bytes memory;
  double memory_rate;      // bytes
  double link, host_link;  // bytes: to other GPUs (NVLink; without it PCIe), to the host (PCIe x16)
  const char* source;
};
std::span<const Gpu> known_gpus();
///   Errors  InputError 64, with the nearest name.
const Gpu& gpu_named(const std::string& name);

/// One host. What is not given is not there, but for a disk's size: then the disk is as large as it takes.
struct Machine {
  Gpu gpu;
  std::int64_t gpus = 1;
  Bytes memory = {};  // of one GPU
  std::optional<Bytes> host_memory = {}, disk_size = {};
  std::optional<double> link = {}, disk = {};  // bytes a second and way; link: what a GPU sends to others
};

/// A message of b bytes that a rank sends takes call_seconds + b / bytes.
struct MessageRate {
  double call_seconds = 0, bytes = 0;
};

/// What one of them reaches: a machine's peaks times the shares measured on an H200.
struct Rates {
  double flops = 0;         // of products, in the run's dtype
  double start_tokens = 0;  // a micro-batch of n tokens takes as long as n + start_tokens at `flops`
  double memory = 0, link = 0, host_link = 0;
  double call_seconds = 0;  // of a collective, or of a message, without its bytes
  MessageRate sum = {},
              gather = {};       // by copy engine, between GPUs that reach each other's memory: lesson 10's
  double part_start_tokens = 0;  // as start_tokens, of a rank that has a part of each matrix
  double adam = 0;               // parameters a second, of all of the host's threads
  double disk = 0;               // bytes, reads and writes together; 0: there is none
};

}  // namespace sc::choose
