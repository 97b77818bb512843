#include "common/storage/hooked_file_ops.h"

#include <array>
#include <type_traits>
#include <utility>

namespace sc {

std::string_view name_of(FileOp op) {
  constexpr std::array<std::string_view, kFileOps> kNames = {"create",
                                                             "create without a name",
                                                             "open for writing",
                                                             "open",
                                                             "write",
                                                             "read",
                                                             "allocate",
                                                             "switch O_DIRECT",
                                                             "flush to the device",
                                                             "flush the directory",
                                                             "rename",
                                                             "swap names",
                                                             "remove",
                                                             "create the directory",
                                                             "lock",
                                                             "look at"};
  return kNames.at(static_cast<std::size_t>(op));
}

bool is_mutating(FileOp op) {
  switch (op) {
    case FileOp::open_write:
    case FileOp::open_read:
    case FileOp::read:
    case FileOp::direct:
    case FileOp::lock:
    case FileOp::look:
      return false;
    default:
      return true;
  }
}

template <class Call>
auto HookedFileOps::hooked(const FileCall& call, Call forward) {
  before(call);
  if constexpr (std::is_void_v<decltype(forward())>) {
    forward();
    after(call, true);
  } else {
    auto result = forward();
    bool changed = true;
    if constexpr (std::is_constructible_v<bool, decltype(result)&>) changed = static_cast<bool>(result);
    after(call, changed);
    return result;
  }
}

class HookedFileOps::HookedFile final : public File {
 public:
  HookedFile(HookedFileOps& ops, std::unique_ptr<File> inner) : ops_(ops), inner_(std::move(inner)) {}

  void write_at(std::span<const std::byte> bytes, Bytes offset) override {
    ops_.hooked(write_call(bytes, offset), [&] { inner_->write_at(bytes, offset); });
  }
  void append(std::span<const std::byte> bytes) override {
    ops_.hooked(write_call(bytes, inner_->size()), [&] { inner_->append(bytes); });
  }
  Bytes read_at(std::span<std::byte> bytes, Bytes offset) override {
    const FileCall call{.op = FileOp::read,
                        .path = inner_->path(),
                        .offset = offset,
                        .size = Bytes(static_cast<std::int64_t>(bytes.size())),
                        .file = inner_.get()};
    return ops_.hooked(call, [&] { return inner_->read_at(bytes, offset); });
  }
  void sync() override {
    const FileCall call{.op = FileOp::sync, .path = inner_->path(), .file = inner_.get()};
    ops_.hooked(call, [&] { inner_->sync(); });
  }
  Bytes size() override { return inner_->size(); }
  [[nodiscard]] const Path& path() const override { return inner_->path(); }

  std::int64_t write_some(std::span<const std::byte> bytes, Bytes offset) override {
    return inner_->write_some(bytes, offset);
  }
  std::int64_t read_some(std::span<std::byte> bytes, Bytes offset) override {
    return inner_->read_some(bytes, offset);
  }
  void allocate(Bytes size) override {
    const FileCall call{.op = FileOp::allocate, .path = inner_->path(), .size = size, .file = inner_.get()};
    ops_.hooked(call, [&] { inner_->allocate(size); });
  }
  bool set_direct(bool direct) override {
    const FileCall call{.op = FileOp::direct, .path = inner_->path(), .file = inner_.get()};
    return ops_.hooked(call, [&] { return inner_->set_direct(direct); });
  }
  std::unique_ptr<File> again() override { return wrap(ops_, inner_->again()); }
  [[nodiscard]] int descriptor() const override { return inner_->descriptor(); }

  static std::unique_ptr<File> wrap(HookedFileOps& ops, std::unique_ptr<File> inner) {
    return inner == nullptr ? nullptr : std::make_unique<HookedFile>(ops, std::move(inner));
  }

 private:
  [[nodiscard]] FileCall write_call(std::span<const std::byte> bytes, Bytes offset) const {
    return {.op = FileOp::write,
            .path = inner_->path(),
            .offset = offset,
            .size = Bytes(static_cast<std::int64_t>(bytes.size())),
            .bytes = bytes,
            .file = inner_.get()};
  }

  HookedFileOps& ops_;
  std::unique_ptr<File> inner_;
};

class HookedFileOps::HookedDirectory final : public Directory {
 public:
  HookedDirectory(HookedFileOps& ops, std::unique_ptr<Directory> inner)
      : ops_(ops), inner_(std::move(inner)) {}

  std::vector<std::string> list() override {
    return ops_.hooked({.op = FileOp::look, .path = inner_->path()}, [&] { return inner_->list(); });
  }
  std::unique_ptr<Directory> open(const std::string& name) override {
    return ops_.hooked({.op = FileOp::look, .path = inner_->path() / name},
                       [&] { return wrap(ops_, inner_->open(name)); });
  }
  void remove(const std::string& name) override {
    ops_.hooked({.op = FileOp::remove, .path = inner_->path() / name}, [&] { inner_->remove(name); });
  }
  [[nodiscard]] const Path& path() const override { return inner_->path(); }

  static std::unique_ptr<Directory> wrap(HookedFileOps& ops, std::unique_ptr<Directory> inner) {
    return inner == nullptr ? nullptr : std::make_unique<HookedDirectory>(ops, std::move(inner));
  }

 private:
  HookedFileOps& ops_;
  std::unique_ptr<Directory> inner_;
};

std::unique_ptr<File> HookedFileOps::create(const Path& path) {
  return hooked({.op = FileOp::create, .path = path},
                [&] { return HookedFile::wrap(*this, inner_.create(path)); });
}

std::unique_ptr<File> HookedFileOps::create_new(const Path& path) {
  return hooked({.op = FileOp::create, .path = path},
                [&] { return HookedFile::wrap(*this, inner_.create_new(path)); });
}

std::unique_ptr<File> HookedFileOps::create_unnamed(const Path& path) {
  return hooked({.op = FileOp::create_unnamed, .path = path},
                [&] { return HookedFile::wrap(*this, inner_.create_unnamed(path)); });
}

std::unique_ptr<File> HookedFileOps::open_write(const Path& path) {
  return hooked({.op = FileOp::open_write, .path = path},
                [&] { return HookedFile::wrap(*this, inner_.open_write(path)); });
}

std::unique_ptr<File> HookedFileOps::open_read(const Path& path) {
  return hooked({.op = FileOp::open_read, .path = path},
                [&] { return HookedFile::wrap(*this, inner_.open_read(path)); });
}

void HookedFileOps::sync_dir(const Path& path) {
  hooked({.op = FileOp::sync_dir, .path = path}, [&] { inner_.sync_dir(path); });
}

void HookedFileOps::rename(const Path& from, const Path& to) {
  hooked({.op = FileOp::rename, .path = from, .other = to}, [&] { inner_.rename(from, to); });
}

bool HookedFileOps::rename_new(const Path& from, const Path& to) {
  return hooked({.op = FileOp::rename, .path = from, .other = to},
                [&] { return inner_.rename_new(from, to); });
}

void HookedFileOps::exchange(const Path& a, const Path& b) {
  hooked({.op = FileOp::exchange, .path = a, .other = b}, [&] { inner_.exchange(a, b); });
}

void HookedFileOps::remove(const Path& path) {
  hooked({.op = FileOp::remove, .path = path}, [&] { inner_.remove(path); });
}

bool HookedFileOps::make_dir(const Path& path) {
  return hooked({.op = FileOp::make_dir, .path = path}, [&] { return inner_.make_dir(path); });
}

std::unique_ptr<Directory> HookedFileOps::open_dir(const Path& path) {
  return hooked({.op = FileOp::look, .path = path},
                [&] { return HookedDirectory::wrap(*this, inner_.open_dir(path)); });
}

std::unique_ptr<FileLock> HookedFileOps::try_lock(const Path& path, LockMode mode) {
  return hooked({.op = FileOp::lock, .path = path}, [&] { return inner_.try_lock(path, mode); });
}

PathKind HookedFileOps::kind(const Path& path, FileIntent intent) {
  return hooked({.op = FileOp::look, .path = path}, [&] { return inner_.kind(path, intent); });
}

PathKind HookedFileOps::kind_of_name(const Path& path, FileIntent intent) {
  return hooked({.op = FileOp::look, .path = path}, [&] { return inner_.kind_of_name(path, intent); });
}

bool HookedFileOps::is_own(const Path& path) {
  return hooked({.op = FileOp::look, .path = path}, [&] { return inner_.is_own(path); });
}

Bytes HookedFileOps::size(const Path& path) {
  return hooked({.op = FileOp::look, .path = path}, [&] { return inner_.size(path); });
}

std::vector<std::string> HookedFileOps::list(const Path& path) {
  return hooked({.op = FileOp::look, .path = path}, [&] { return inner_.list(path); });
}

FreeSpace HookedFileOps::free_space(const Path& path) {
  return hooked({.op = FileOp::look, .path = path}, [&] { return inner_.free_space(path); });
}

}  // namespace sc
