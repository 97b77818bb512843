#!/usr/bin/env python3
"""Writes torch_schedules.txt: the order of compute actions that torch.distributed.pipelining gives every
stage.

usage: make_torch.py > torch_schedules.txt        (any Python with torch 2.11; no ranks, no GPU)

The functions that order the actions need a few attributes of a schedule object and no process group, so
objects are made without running their constructors. GPipe and 1F1B stand here twice: "run" is what their step
function does to a stage that writes down its calls, "listed" what _get_pipeline_order says of it. A line is:
name stages microbatches chunks stage: actions. Stage numbers in torch are positions in the model; an action
on chunk c is written as microbatch/c. Gradient reductions and idle slots are left out. Schedules that torch's
constructors refuse are left out: 1F1B with fewer microbatches than stages; interleaved schedules where the
number of rounds, max(1, M // S), does not divide M.
"""
import torch.distributed.pipelining.schedules as schedules

MARKS = {"F": "F", "B": "B", "I": "I", "W": "W"}


def text(action, stages):
    kind = MARKS.get(str(action.computation_type.value))
    if kind is None:
        return None
    chunk = action.stage_index // stages
    return f"{kind}{action.microbatch_index}" + (f"/{chunk}" if chunk else "")


def line(name, stages, microbatches, chunks, stage, actions):
    words = [text(a, stages) for a in actions if a is not None]
    print(name, stages, microbatches, chunks, f"{stage}:", " ".join(w for w in words if w))


class RecordingStage:
    """A stage without neighbours or tensors: forward and backward are written down."""

    is_last = False

    def __init__(self, stage_index):
        self.stage_index = stage_index
        self.calls = []

    def forward_one_chunk(self, index, *_args, **_kwargs):
        self.calls.append(f"F{index}")

    def backward_one_chunk(self, index, **_kwargs):
        self.calls.append(f"B{index}")

    def perform_reduce_grad(self, _scale):
        pass

    def get_fwd_recv_ops(self, _index):
        return []

    get_fwd_send_ops = get_bwd_recv_ops = get_bwd_send_ops = get_fwd_recv_ops


def run(name, cls, stages, microbatches):
    for stage in range(stages):
        schedule = object.__new__(cls)
        schedule._num_stages = stages
        schedule._n_microbatches = microbatches
        schedule._stage = RecordingStage(stage)
        schedule._loss_fn = None
        schedule._internal_losses = []
        schedule.scale_grads = False
        schedule._initialize_stage = lambda _args, _kwargs: None
        schedule._step_microbatches([()] * microbatches, [{}] * microbatches)
        print(name, stages, microbatches, 1, f"{stage}:", *schedule._stage.calls)


def single(name, cls, stages, microbatches):
    schedule = object.__new__(cls)
    schedule._num_stages = stages
    schedule._n_microbatches = microbatches
    order = schedule._get_pipeline_order()
    for stage in range(stages):
        line(name, stages, microbatches, 1, stage, order[stage])


def multi(name, cls, stages, microbatches, chunks):
    schedule = object.__new__(cls)
    schedule.pp_group_size = stages
    schedule._n_microbatches = microbatches
    schedule.n_local_stages = chunks
    schedule.number_of_rounds = max(1, microbatches // stages)
    schedule.microbatches_per_round = microbatches // schedule.number_of_rounds
    if microbatches % schedule.number_of_rounds != 0:
        return
    for stage in range(stages):
        line(name, stages, microbatches, chunks, stage, schedule._calculate_single_rank_operations(stage))


def main():
    import torch

    print("# torch", torch.__version__.split("+")[0], "torch.distributed.pipelining.schedules")
    for stages in range(1, 5):
        for microbatches in range(1, 9):
            run("gpipe_run", schedules.ScheduleGPipe, stages, microbatches)
            single("gpipe_listed", schedules.ScheduleGPipe, stages, microbatches)
            if microbatches >= stages:
                run("1f1b_run", schedules.Schedule1F1B, stages, microbatches)
                single("1f1b_listed", schedules.Schedule1F1B, stages, microbatches)
            for chunks in (1, 2, 3):
                multi("interleaved", schedules.ScheduleInterleaved1F1B, stages, microbatches, chunks)
                multi("zb_h1", schedules.ScheduleInterleavedZeroBubble, stages, microbatches, chunks)


if __name__ == "__main__":
    main()
