// Exercise of lesson 08; what is asked for stands in old_weights.cpp.
#pragma once

#include <map>

#include "pipedream/schedule.h"

namespace sc {

/// A stage of a pipeline without a flush. It updates its weights after every `update_every` backwards.
struct StagePlace {
  pipedream::VersionRule versions = pipedream::VersionRule::stash;  // or vertical_sync, two_buffers
  int stages = 1, stage = 0, update_every = 1;
};

/// Buffers with the weights of a stage. Version 0 is in buffer 0, which is taken.
class WeightBuffers {
 public:
  virtual ~WeightBuffers() = default;
  /// A buffer nobody holds: a new one if there is none.
  virtual int take() = 0;
  virtual void give_back(int buffer) = 0;
  /// AdamW: makes the next version of the newest one, which is in `newest`. `into` is held, and may be the
  /// same.
  virtual void update(int newest, int into) = 0;
};

/// Which buffers the computations of one stage read, and where its updates go.
class OldWeights {
 public:
  OldWeights(const StagePlace& place, WeightBuffers& buffers) : place_(place), buffers_(buffers) {}
  /// The buffer that the micro-batch's forward reads; its backward.
  int forward(int microbatch);
  int backward(int microbatch);
  /// Makes the next version of the weights: called when a step's gradient is complete.
  void update();

 private:
  const StagePlace place_;
  WeightBuffers& buffers_;
  std::map<int, int> held_ = {{0, 0}};  // by version: its buffer
  std::map<int, int> read_;             // by micro-batch between forward and backward: the version
  int next_ = 0;                        // the micro-batch of the next forward: they ascend
};

}  // namespace sc
