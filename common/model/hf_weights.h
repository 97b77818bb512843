// GPT-2 weights in Hugging Face's safetensors form, read and written one tensor at a time.
//   Conv1D matrices (c_attn, c_proj, c_fc) are [in, out] in the file and [out, in] here, so they are
//   transposed. Models built of Linear layers (nanoGPT) store them as here; the shapes of c_attn and c_fc
//   show which it is. In a file wte and an untied lm_head have `vocab` rows, or more, up to a multiple of 2
//   .. 1024, and here V_pad: padding rows are dropped on export and zero on load.
//   Source  transformers' modeling_gpt2.py (names), github.com/huggingface/safetensors (file).
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "common/model/gpt.h"
#include "common/storage/safetensors.h"

namespace sc {

/// The weights in one file: names that our_name() understands, in f32, bf16 or f16. The buffers h.N.attn.bias
/// and h.N.attn.masked_bias of old files are ignored. Loads whatever contains all data, with a note on what
/// was unusual: matrices of either orientation, missing biases (zero), padding rows, heads of other tasks,
/// the shared matrix under either of its names.
class HfWeights {
 public:
  /// Reads the header alone and compares it with `config`, tensor by tensor.
  ///   Errors  InputError (exit 65) naming the file and the first tensor that is missing, unknown, duplicate,
  ///           of another shape (both shapes) or of another kind of number; a tied model and a file whose
  ///           lm_head.weight is not its wte.weight; a file or folder of this program's checkpoints; those of
  ///           check_hf_config().
  HfWeights(const Path& path, const GptConfig& config);
  /// Remarks for the user about what was unusual in the file, one line each.
  [[nodiscard]] const std::vector<std::string>& notes() const { return notes_; }

  /// Fills one unit; padding rows and gaps between tensors become zeros. Takes any layout of the config's
  /// model, any dtype and device. An untied model whose file has no lm_head.weight gets wte as its head.
  ///   Errors  InputError (exit 65) naming a tensor that holds a number that is not finite.
  void load_unit(const ParamLayout& layout, int unit, const UnitTensors& params) const;

 private:
  [[noreturn]] void refuse(const std::string& what, const std::string& fix) const;
  [[nodiscard]] const SafeTensor* find(const std::string& name) const;
  [[nodiscard]] const SafeTensor* source(const std::string& name) const;
  void read_names();
  void read_orientation(const ParamLayout& layout);
  [[nodiscard]] std::vector<std::int64_t> file_shape(const ParamTensor& tensor) const;
  [[nodiscard]] bool is_padded(const SafeTensor& found, const std::vector<std::int64_t>& wanted) const;
  [[nodiscard]] at::Tensor stored(const SafeTensor& tensor) const;
  void check_tensor(const ParamTensor& wanted) const;
  void check_names(const ParamLayout& layout);
  void check_tied_head() const;
  void require_finite(const SafeTensor& tensor, std::int64_t rows) const;
  [[nodiscard]] std::string model_in_file() const;
  [[nodiscard]] std::int64_t layers_in_file() const;
  [[nodiscard]] bool is_workloads_model() const;
  [[nodiscard]] std::string fix_of_shapes() const;
  [[noreturn]] void refuse_stranger(const SafeTensor& tensor, bool of_more_layers) const;

  GptConfig config_;
  SafetensorsReader reader_;
  std::map<std::string, const SafeTensor*> tensors_;  // by our names
  bool linear_ = false;                               // matrices are [out, in], as here
  bool has_biases_ = false;
  std::vector<std::string> notes_;
};

/// Writes a whole model to `file` (empty; usually inside atomic_write_file) under save_pretrained's names.
///   unit   called for 0, 1, ... in turn; what it returns must stay valid until the next call.
///   dtype  the file's: f32, bf16 or f16
void export_hf_weights(File& file, const ParamLayout& layout, DType dtype,
                       const std::function<UnitTensors(int unit)>& unit);

}  // namespace sc
