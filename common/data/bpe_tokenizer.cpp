#include "common/data/bpe_tokenizer.h"

#include <spdlog/fmt/fmt.h>

#include <algorithm>
#include <functional>
#include <limits>
#include <queue>
#include <stdexcept>

#include "common/base/check.h"
#include "common/base/text.h"
#include "common/data/bpe/split.h"
#include "common/data/prose.h"
#include "common/input/utf8.h"
#include "common/storage/mapped_file.h"

namespace sc {
namespace {

constexpr int kBytes = 256, kSymbolsEnd = 512;
constexpr std::size_t kNone = std::numeric_limits<std::size_t>::max();
constexpr unsigned kIdBits = 16;
constexpr const char* kFetch = "git checkout -- common/data/bpe, or common/data/prepare/fetch_bpe.sh";

/// Whether GPT-2 writes a byte as the character of that number; it writes the others as U+0100, U+0101.
constexpr bool prints_as_itself(int byte) {
  return (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
}

/// The byte that each code point of vocab.bpe stands for, or -1. Bytes have their ids in that order.
std::vector<int> bytes_of_symbols() {
  std::vector<int> byte_of(kSymbolsEnd, -1);
  int next = kBytes;
  for (int byte = 0; byte < kBytes; ++byte) byte_of[prints_as_itself(byte) ? byte : next++] = byte;
  return byte_of;
}

/// The bytes that a symbol of vocab.bpe stands for; empty if it is no symbol.
std::string bytes_of(std::string_view symbol, const std::vector<int>& byte_of) {
  std::string bytes;
  while (!symbol.empty()) {
    const Utf8Char c = first_utf8(symbol);
    if (c.state != Utf8Char::State::complete || c.code >= byte_of.size() || byte_of[c.code] < 0) return {};
    bytes.push_back(static_cast<char>(byte_of[c.code]));
    symbol.remove_prefix(c.length);
  }
  return bytes;
}

constexpr std::uint32_t key_of(TokenId left, TokenId right) { return std::uint32_t{left} << kIdBits | right; }

[[noreturn]] void refuse_merge(const std::string& where, std::size_t line, const std::string& what) {
  throw InputError(ExitCode::data, fmt::format("{}:{}", where, line), what, kFetch);
}

}  // namespace

/// A piece of text while its tokens are merged: a linked list of tokens, and the merges that neighbours
/// offer. An offer may outlive its tokens, so it is checked when its turn comes.
struct BpeTokenizer::Scratch {
  struct Node {
    TokenId id;
    bool alive;
    std::size_t previous, next;  // kNone at the ends
  };
  /// A merge: its new id in the upper 16 bits (a lower id was learnt earlier), the left node in the lower 48.
  using Offer = std::uint64_t;
  static constexpr unsigned kNodeBits = 48;
  std::vector<Node> nodes;
  std::priority_queue<Offer, std::vector<Offer>, std::greater<>> offers;  // the smallest comes first
};

BpeTokenizer::BpeTokenizer(std::string_view name, std::string_view merges, const std::string& where)
    : name_(name), byte_id_(kBytes) {
  const std::vector<int> byte_of = bytes_of_symbols();
  for (const int byte : byte_of) {
    if (byte < 0) continue;
    byte_id_[byte] = static_cast<TokenId>(tokens_.size());
    id_of_.emplace(std::string(1, static_cast<char>(byte)), byte_id_[byte]);
    tokens_.emplace_back(1, static_cast<char>(byte));
  }
  take_line(merges);  // skips the heading "#version: 0.2"
  for (std::size_t line = 2; !merges.empty(); ++line) {
    const std::string_view text = take_line(merges);
    const std::size_t blank = text.find(' ');
    const std::string left = bytes_of(text.substr(0, blank), byte_of);
    const std::string right =
        blank == std::string_view::npos ? std::string() : bytes_of(text.substr(blank + 1), byte_of);
    if (left.empty() || right.empty())
      refuse_merge(where, line, fmt::format("\"{}\" is not two symbols", text));
    add_merge(left, right, where, line);
  }
}

void BpeTokenizer::add_merge(std::string_view left, std::string_view right, const std::string& where,
                             std::size_t line) {
  const auto left_id = id_of_.find(std::string(left)), right_id = id_of_.find(std::string(right));
  if (left_id == id_of_.end() || right_id == id_of_.end()) {
    refuse_merge(where, line, "merges a symbol that no line before it has made");
  }
  if (tokens_.size() == std::numeric_limits<TokenId>::max())
    refuse_merge(where, line, "more than 65,536 ids");
  const auto id = static_cast<TokenId>(tokens_.size());
  merge_to_id_.emplace(key_of(left_id->second, right_id->second), id);
  if (!id_of_.emplace(std::string(left).append(right), id).second) {
    refuse_merge(where, line, "makes a symbol that a line before it has made");
  }
  tokens_.push_back(std::string(left).append(right));
}

const TokenId* BpeTokenizer::merged(TokenId left, TokenId right) const {
  const auto found = merge_to_id_.find(key_of(left, right));
  return found == merge_to_id_.end() ? nullptr : &found->second;
}

std::vector<TokenId> BpeTokenizer::encode(std::string_view text) const {
  std::vector<TokenId> ids;
  ids.reserve(text.size() / 3);
  Scratch scratch;
  std::string key;  // reused, since unordered_map is searched with a std::string
  while (!text.empty()) {
    const std::string_view piece = text.substr(0, first_piece(text));
    text.remove_prefix(piece.size());
    key.assign(piece);
    // Most pieces are one token, so the whole piece is looked up first. A test checks that merging gives the
    // same for every token.
    if (const auto whole = id_of_.find(key); whole != id_of_.end()) {
      ids.push_back(whole->second);
    } else {
      merge_into(piece, scratch, ids);
    }
  }
  return ids;
}

void BpeTokenizer::push_merge(Scratch& scratch, std::size_t left) const {
  const Scratch::Node& node = scratch.nodes[left];
  if (node.next == kNone) return;
  const TokenId* id = merged(node.id, scratch.nodes[node.next].id);
  if (id == nullptr) return;
  scratch.offers.push(std::uint64_t{*id} << Scratch::kNodeBits | left);
}

void BpeTokenizer::merge_into(std::string_view piece, Scratch& scratch, std::vector<TokenId>& ids) const {
  auto& nodes = scratch.nodes;
  auto& offers = scratch.offers;
  nodes.clear();
  for (std::size_t at = 0; at < piece.size(); ++at) {
    const TokenId id = byte_id_[static_cast<unsigned char>(piece[at])];
    nodes.push_back({id, true, at == 0 ? kNone : at - 1, at + 1 == piece.size() ? kNone : at + 1});
  }
  for (std::size_t at = 0; at < nodes.size(); ++at) push_merge(scratch, at);
  while (!offers.empty()) {
    const Scratch::Offer offer = offers.top();
    offers.pop();
    const auto id = static_cast<TokenId>(offer >> Scratch::kNodeBits);
    Scratch::Node& left = nodes[offer & ((Scratch::Offer{1} << Scratch::kNodeBits) - 1)];
    if (!left.alive || left.next == kNone) continue;
    Scratch::Node& right = nodes[left.next];
    const TokenId* now = merged(left.id, right.id);
    if (now == nullptr || *now != id) continue;
    left.id = id;
    right.alive = false;
    left.next = right.next;
    const auto here = static_cast<std::size_t>(&left - nodes.data());
    if (right.next != kNone) nodes[right.next].previous = here;
    push_merge(scratch, here);
    if (left.previous != kNone) push_merge(scratch, left.previous);
  }
  for (std::size_t at = nodes.empty() ? kNone : 0; at != kNone; at = nodes[at].next)
    ids.push_back(nodes[at].id);
}

std::vector<TokenId> BpeTokenizer::merge(std::string_view piece) const {
  Scratch scratch;
  std::vector<TokenId> ids;
  merge_into(piece, scratch, ids);
  return ids;
}

std::string BpeTokenizer::decode(std::span<const TokenId> ids) const {
  std::string text;
  for (const TokenId id : ids) {
    if (id > end_of_text()) throw std::out_of_range(fmt::format("{} tokenizer: id {}", name_, id));
    if (id != end_of_text()) text += tokens_[id];
  }
  return text;
}

Path gpt2_merges() { return Path(STAGECRAFT_SOURCE_DIR) / "common/data/bpe/vocab.bpe"; }

std::unique_ptr<BpeTokenizer> gpt2_tokenizer(const Path& merges) {
  const std::unique_ptr<FileOps> ops = posix_file_ops();
  if (ops->kind(merges) == PathKind::absent) {
    throw InputError(ExitCode::missing, merges.string(), "GPT-2's merges are not there", kFetch);
  }
  const std::string text = read_file(*ops, merges);
  if (const std::string sha256 = hex_sha256(text); sha256 != kGpt2MergesSha256) {
    throw InputError(ExitCode::data, merges.string(),
                     fmt::format("not GPT-2's merges: sha256 {} instead of {}", sha256, kGpt2MergesSha256),
                     kFetch);
  }
  return std::make_unique<BpeTokenizer>("gpt2", text, merges.string());
}

}  // namespace sc
