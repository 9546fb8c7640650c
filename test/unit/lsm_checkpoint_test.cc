// Copies of closed stores: what they hold, and what becomes of one that is interrupted.
#include <fstream>

#include "test/support/closed_store_fixture.h"

namespace farleaf::index::lsm {
namespace {

struct CopyTest : ClosedStoreTest {
  const std::string to = folder.path() + "/copy";

  Result<CopyReport> Copy(const std::string& source, const std::string& target, CopyLinks links,
                          std::function<void(const CopyReport&)> progress = {}) {
    auto store = Open(source);
    if (!store.ok()) return store.status();
    return worker.Run(CopyStore(worker, **store, target, links, std::move(progress)));
  }
};

TEST_F(CopyTest, ACheckpointHoldsWhatItHeldWhateverTheStoreDoesLater) {
  for (const End end : {End::kClosed, End::kCrashed}) {
    for (const char* const each : {"/store", "/copy", "/restored"}) {
      fs::remove_all(folder.path() + each);
    }
    model.clear();
    MakeStore(end);
    const auto report = Copy(directory, to, CopyLinks::kWherePossible);
    ASSERT_TRUE(report.ok()) << report.status();
    EXPECT_EQ(report->linked, report->segments);
    ExpectSound(to);
    const Model then = model;
    {
      Served store(directory);  // removes and recycles segments
      for (uint64_t number = 0; number < 2000; ++number) Put(store, number, 3);
      store.Flush();
      for (uint64_t number = 0; number < 2000; ++number) Put(store, number, 4);
      store.Flush();
      store.Close();
    }
    ExpectSound(to);
    EXPECT_EQ(Dump(to), then);
    EXPECT_EQ(Dump(directory), model);

    const std::string restored = folder.path() + "/restored";
    const auto restoring = Copy(to, restored, CopyLinks::kNever);
    ASSERT_TRUE(restoring.ok()) << restoring.status();
    EXPECT_EQ(restoring->linked, 0u);
    {
      Served store(restored);
      EXPECT_EQ(store.All(), then);
      for (uint64_t number = 0; number < 2000; ++number) {
        store.Put(fmt::format("key{:06}", number), "new");
      }
      store.Flush();
    }
    for (const auto& file : fs::recursive_directory_iterator(restored)) {
      if (file.is_regular_file()) {
        EXPECT_EQ(fs::hard_link_count(file), 1u) << file.path();
      }
    }
    EXPECT_EQ(Dump(to), then);
    EXPECT_EQ(Served(to).All(), then);  // it is a store itself
  }
}

TEST_F(CopyTest, AnInterruptedCopyIsNoStore) {
  MakeStore(End::kClosed);
  const std::string before = to + "/INCOMPLETE";
  bool was_there = true;
  std::string frozen;
  const auto report = Copy(directory, to, CopyLinks::kNever, [&](const CopyReport& so_far) {
    was_there = was_there && fs::exists(before);
    if (so_far.segments != 2) return;
    frozen = folder.path() + "/frozen";  // as a crash would leave it
    fs::copy(to, frozen, fs::copy_options::recursive);
  });
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_TRUE(was_there);
  EXPECT_FALSE(fs::exists(before));
  const Status looked = Open(frozen).status();
  EXPECT_EQ(looked.code(), StatusCode::kCorruption);
  EXPECT_NE(looked.message().find("not finished"), std::string::npos) << looked;
  auto files = storage::FileStorage::Open({.directory = frozen});
  ASSERT_TRUE(files.ok()) << files.status();
  auto served = worker.Run(
      LsmStore::Open(worker, {files->get(), &epochs, &wall, 1}, {}, LsmStore::IfMissing::kCreate));
  EXPECT_EQ(served.status().code(), StatusCode::kCorruption) << served.status();
}

TEST_F(CopyTest, OnlyANewOrEmptyDirectoryOutsideIsCopiedTo) {
  MakeStore(End::kClosed);
  fs::create_directory(to);
  std::ofstream(to + "/notes.txt") << "somebody's";
  EXPECT_EQ(Copy(directory, to, CopyLinks::kNever).status().code(), StatusCode::kInvalidArgument);
  fs::remove(to + "/notes.txt");
  EXPECT_EQ(Copy(directory, directory, CopyLinks::kNever).status().code(),
            StatusCode::kInvalidArgument);
  EXPECT_EQ(Copy(directory, directory + "/below", CopyLinks::kNever).status().code(),
            StatusCode::kInvalidArgument);
  EXPECT_FALSE(fs::exists(directory + "/below"));
  EXPECT_TRUE(Copy(directory, to, CopyLinks::kNever).ok());
  EXPECT_EQ(Dump(to), model);
  EXPECT_EQ(Copy(directory, to, CopyLinks::kNever).status().code(), StatusCode::kInvalidArgument);
  fs::remove(NameOf(FirstTable().segments.front()));
  EXPECT_EQ(Copy(directory, folder.path() + "/other", CopyLinks::kNever).status().code(),
            StatusCode::kCorruption);
  EXPECT_FALSE(fs::exists(folder.path() + "/other"));
}

}  // namespace
}  // namespace farleaf::index::lsm
