// What the symbols in a plan's formulas mean: one legend for every lesson. No torch.
//
// A formula is bytes. It has whole numbers, symbols, KiB and MiB; products ("4 P", "2 x 3"), quotients, sums,
// differences and parentheses, and begins with the bytes of an element where it counts elements.
// tests/lessons/formulas_test.cpp works every formula out beside the plan.
#pragma once

#include <array>

namespace sc {

struct FormulaSymbol {
  const char *symbol, *meaning;
};

inline constexpr std::array kFormulaSymbols = {
    // Counts of elements. `unit` and `whole` are of the unit that the buffer's name says.
    FormulaSymbol{"P", "of all units, padded for the ranks that share them; of tensor ranks this one's"},
    FormulaSymbol{"W", "of P, those that persist_below keeps whole on every rank"},
    FormulaSymbol{"unit", "of the unit, padded as in P; of blocks, the largest one's"},
    FormulaSymbol{"whole", "of unit, those that persist_below keeps whole on every rank"},
    FormulaSymbol{"stage", "of all units of this stage, with its copy of the tied matrix"},
    FormulaSymbol{"bucket", "of the largest message of gradients"},
    FormulaSymbol{"piece", "of the largest piece of states that is updated at a time"},
    // The model and the batch.
    FormulaSymbol{"L", "blocks of the model"},
    FormulaSymbol{"d", "width"},
    FormulaSymbol{"V", "vocabulary as stored"},
    FormulaSymbol{"B", "rows of a micro-batch"},
    FormulaSymbol{"T", "tokens of a row"},
    FormulaSymbol{"M", "micro-batches of a rank in a step"},
    FormulaSymbol{"M_eval", "micro-batches of a rank in an evaluation, where those are more"},
    // Of one tensor rank.
    FormulaSymbol{"t", "tensor ranks"},
    FormulaSymbol{"n", "tokens of a micro-batch that are its own: B T/t, or with tokens=whole B T"},
    FormulaSymbol{"a", "elements of its heads of attention, a token"},
    FormulaSymbol{"m", "its columns of the MLP"},
    FormulaSymbol{"v", "its rows of the vocabulary"},
    FormulaSymbol{"chunk", "rows of logits at a time"},
    FormulaSymbol{"part", "what forward keeps of its part of a block for backward"},
    FormulaSymbol{"parts", "what as many tensor ranks together compute with, on one"},
    // Ranks, and how far they are behind.
    FormulaSymbol{"N", "ranks; of a pipeline S R"},
    FormulaSymbol{"S", "stages of a pipeline"},
    FormulaSymbol{"R", "replicas of a stage, or of k ranks"},
    FormulaSymbol{"k", "neighbours that share each vector out (shard_ranks)"},
    FormulaSymbol{"virtual_ranks", "whose order of summation one rank copies"},
    FormulaSymbol{"norm_lag", "updates after which the norm of one clips another"},
    FormulaSymbol{"result_lag", "steps after which every stage knows what one came to"},
    FormulaSymbol{"buffers", "pieces of the window"},
    // Bytes that have no short formula. common/model/activation_plan.cpp counts the first four.
    FormulaSymbol{"saved", "what forward keeps of a block for its backward"},
    FormulaSymbol{"work", "what one block is computed with"},
    FormulaSymbol{"head", "what the head is computed with: its input, its statistics, logits"},
    FormulaSymbol{"waiting", "what the weights' half of a block's backward waits with"},
    FormulaSymbol{"rounding", "up to whole blocks of 4096 bytes: of a piece, on the disk of all of them"},
    // A checkpoint that is written while training goes on.
    FormulaSymbol{"copied",
                  "elements of each state that this rank writes: its own, or its part of equal ones"},
    FormulaSymbol{"pending", "bytes that a step has left for the next one"},
};

}  // namespace sc
