// What is special to files: the lock, descriptors, recycling, links, a device that is really full, and how a worker
// is woken by its ring.
#include "index/storage/file_storage.h"

#include <gtest/gtest.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <thread>

#include "test/support/small_device.h"
#include "test/support/storage_under_test.h"

namespace farleaf::index::storage {
namespace {

using dsm::Task;

struct FileStorageTest : ::testing::Test {
  TemporaryFolder folder;
  MonotonicClock clock;
  std::unique_ptr<FileStorage> storage;
  std::unique_ptr<Desk> desk;

  void Open(FileStorageOptions options = {}) {
    desk.reset();
    storage.reset();
    if (options.directory.empty()) options.directory = folder.path();
    Result<std::unique_ptr<FileStorage>> opened = FileStorage::Open(options);
    ASSERT_TRUE(opened.ok()) << opened.status();
    storage = std::move(*opened);
    desk = std::make_unique<Desk>(storage.get(), &clock);
  }
  std::string PathOf(uint64_t id) { return storage->NameOf(SegmentId{id}); }
  ino_t FileOf(const std::string& path) {
    struct stat found {};
    EXPECT_EQ(::stat(path.c_str(), &found), 0) << path;
    return found.st_ino;
  }
  Status Remove(uint64_t id) {
    Status removed = storage->Remove(SegmentId{id});
    storage->segment_files().Settle();
    return removed;
  }
};

TEST_F(FileStorageTest, ADirectoryIsOpenInOnePlaceAtATime) {
  Open();
  Result<std::unique_ptr<FileStorage>> second = FileStorage::Open({.directory = folder.path()});
  ASSERT_EQ(second.status().code(), StatusCode::kAlreadyExists);
  EXPECT_NE(second.status().message().find(folder.path()), std::string::npos) << second.status();
  EXPECT_NE(second.status().message().find(std::to_string(::getpid())), std::string::npos)
      << second.status();
  Open();  // closes the first
}

TEST_F(FileStorageTest, ADirectoryThatCannotBeMadeIsNamed) {
  Result<std::unique_ptr<FileStorage>> opened =
      FileStorage::Open({.directory = "/proc/no-such-place/data"});
  ASSERT_FALSE(opened.ok());
  EXPECT_NE(opened.status().message().find("/proc/no-such-place/data"), std::string::npos);
}

TEST_F(FileStorageTest, OptionsOutOfTheirRangesAreRefusedByName) {
  const FileStorageOptions sound{.directory = folder.path() + "/data"};
  const auto refused = [&](const char* text, auto change) {
    FileStorageOptions options = sound;
    change(options);
    const Status invalid = options.Validate();
    EXPECT_EQ(invalid.code(), StatusCode::kInvalidArgument) << text;
    EXPECT_NE(invalid.message().find(text), std::string::npos) << invalid;
    EXPECT_EQ(FileStorage::Open(options).status().code(), StatusCode::kInvalidArgument) << text;
  };
  refused("directory is empty", [](auto& o) { o.directory.clear(); });
  refused("open_files_max is 15: 16 to 1000000 can be", [](auto& o) { o.open_files_max = 15; });
  refused("open_files_max is 1000001", [](auto& o) { o.open_files_max = 1'000'001; });
  refused("free_files_max is 1025: 0 to 1024 can be", [](auto& o) { o.free_files_max = 1025; });
  refused("threads is 0: 1 to 64 can be", [](auto& o) { o.threads = 0; });
  refused("threads is 65", [](auto& o) { o.threads = 65; });
  refused("bytes_max is 2097151", [](auto& o) { o.bytes_max = kSegmentBytes - 1; });
  refused("bytes_max is 1125899906842625", [](auto& o) { o.bytes_max = (uint64_t{1} << 50) + 1; });
  EXPECT_FALSE(std::filesystem::exists(sound.directory)) << "nothing is made before that";
  for (const FileStorageOptions& least :
       {FileStorageOptions{"d", {}, {}, 16, 0, 1, kSegmentBytes},
        FileStorageOptions{"d", {}, {}, 1'000'000, 1024, 64, uint64_t{1} << 50}, sound}) {
    EXPECT_TRUE(least.Validate().ok()) << least.Validate();
  }
}

// ---- Where the kernel has no io_uring for us

/// What a thread does that may open no rings, as in a container that forbids them. False: it could not be forbidden.
template <typename Work>
bool WithoutRings(const Work& work) {
  bool forbidden = false;
  std::thread thread([&] {  // the filter is the thread's, and that of those that it starts
    sock_filter steps[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_io_uring_setup, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    const sock_fprog filter{std::size(steps), steps};
    forbidden = ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
                ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) == 0;
    if (forbidden) work();
  });
  thread.join();
  return forbidden;
}

TEST_F(FileStorageTest, WithoutIoUringThreadsDoTheIoUnlessItWasAskedFor) {
  const bool forbidden = WithoutRings([&] {
    Open();
    EXPECT_EQ(storage->engine(), IoEngine::kThreads);
    ASSERT_TRUE(desk->Create(1).ok() && desk->Write(1, 3, 'a', 9).ok() && desk->Sync(1).ok());
    EXPECT_EQ(desk->Read(1, 11), 'a');
    desk.reset();
    storage.reset();
    const auto refused =
        FileStorage::Open({.directory = folder.path(), .engine = IoEngine::kIoUring});
    EXPECT_EQ(refused.status().code(), StatusCode::kIoError) << refused.status();
    EXPECT_NE(refused.status().message().find("io_uring_setup"), std::string::npos)
        << refused.status();
  });
  if (!forbidden) GTEST_SKIP() << "system calls cannot be forbidden here";
  // Nothing of what was tried in vain is left, and the data does not care which engine wrote it.
  Open({.engine = IoEngine::kIoUring});
  EXPECT_EQ(storage->engine(), IoEngine::kIoUring);
  EXPECT_EQ(desk->Read(1, 3), 'a');
}

TEST_F(FileStorageTest, AWorkerThatCanHaveNoRingIsServedByThreads) {
  Open({.engine = IoEngine::kIoUring});
  ASSERT_TRUE(desk->Create(1).ok());
  const bool forbidden = WithoutRings([&] {
    Desk other(storage.get(), &clock);
    EXPECT_TRUE(other.Write(1, 3, 'a', 9).ok() && other.Sync(1).ok());
    EXPECT_EQ(other.Read(1, 11), 'a');
  });
  if (!forbidden) GTEST_SKIP() << "system calls cannot be forbidden here";
  EXPECT_EQ(desk->Read(1, 11), 'a');
}

TEST_F(FileStorageTest, MoreSegmentsThanDescriptorsAreReadAndWritten) {
  Open({.open_files_max = 16});
  for (uint64_t id = 1; id <= 60; ++id) {
    ASSERT_TRUE(desk->Create(id).ok());
    ASSERT_TRUE(desk->Write(id, 1, static_cast<char>(id)).ok());
  }
  EXPECT_LE(storage->segment_files().open_files(), 16u);
  for (uint64_t id = 60; id >= 1; --id) EXPECT_EQ(desk->Read(id, 1), static_cast<int>(id));
  EXPECT_LE(storage->segment_files().open_files(), 16u);
  ASSERT_TRUE(Remove(60).ok());
  EXPECT_EQ(desk->TryRead(60, 1).code(), StatusCode::kNotFound);
}

TEST_F(FileStorageTest, TheFileOfARemovedSegmentServesANewOne) {
  Open();
  ASSERT_TRUE(desk->Create(1).ok() && desk->Write(1, 0, 'a').ok());
  const ino_t file = FileOf(PathOf(1));
  ASSERT_TRUE(Remove(1).ok());
  EXPECT_FALSE(std::filesystem::exists(PathOf(1)));
  EXPECT_EQ(storage->segment_files().free_files(), 1u);
  ASSERT_TRUE(desk->Create(2).ok());
  EXPECT_EQ(FileOf(PathOf(2)), file);
  EXPECT_EQ(storage->segment_files().free_files(), 0u);
}

// Else what nobody wants any more would be written when the file serves another segment.
TEST_F(FileStorageTest, TheFileOfASegmentThatIsWrittenLazilyGoesWithIt) {
  Open();
  ASSERT_TRUE(desk->Create(1, WriteBack::kLazily).ok() && desk->Create(2, WriteBack::kLazily).ok());
  ASSERT_TRUE(desk->Write(1, 0, 'a', 512).ok() && desk->Write(2, 5, 'b', 3).ok());
  ASSERT_TRUE(Remove(1).ok());
  EXPECT_FALSE(std::filesystem::exists(PathOf(1)));
  EXPECT_EQ(storage->segment_files().free_files(), 0u);
  Open();  // whoever opens the directory anew reads past the page cache
  EXPECT_EQ(desk->Read(2, 7), 'b');
  ASSERT_TRUE(Remove(2).ok());
  EXPECT_EQ(storage->segment_files().free_files(), 1u) << "it is a file like any other now";
}

TEST_F(FileStorageTest, FreeFilesAreKeptUpToABoundAndOverAReopening) {
  Open({.free_files_max = 2});
  for (uint64_t id = 1; id <= 5; ++id) ASSERT_TRUE(desk->Create(id).ok());
  for (uint64_t id = 1; id <= 5; ++id) ASSERT_TRUE(Remove(id).ok());
  EXPECT_EQ(storage->segment_files().free_files(), 2u);
  Open({.free_files_max = 2});
  EXPECT_EQ(storage->segment_files().free_files(), 2u);
  EXPECT_TRUE(storage->List()->empty());
  Open({.free_files_max = 0});
  EXPECT_TRUE(desk->FillReserve().ok()) << "which is none";
  EXPECT_EQ(storage->segment_files().free_files(), 0u);
}

TEST_F(FileStorageTest, AFileWithAnotherNameIsNeverWrittenForAnotherSegment) {
  Open();
  const std::string checkpoint = folder.path() + "/checkpoint";
  std::filesystem::create_directory(checkpoint);
  ASSERT_TRUE(desk->Create(1).ok() && desk->Write(1, 0, 'a', 512).ok() && desk->Sync(1).ok());
  ASSERT_TRUE(desk->Create(2).ok());
  const std::string link = checkpoint + "/1";
  ASSERT_EQ(::link(PathOf(1).c_str(), link.c_str()), 0);
  ASSERT_TRUE(Remove(1).ok());
  EXPECT_EQ(storage->segment_files().free_files(), 0u);
  // Also if the link is made when the file is free already.
  ASSERT_TRUE(Remove(2).ok());
  ASSERT_EQ(storage->segment_files().free_files(), 1u);
  const std::string free_file =
      std::filesystem::directory_iterator(folder.path() + "/free")->path().string();
  ASSERT_EQ(::link(free_file.c_str(), (checkpoint + "/2").c_str()), 0);
  for (uint64_t id = 3; id <= 6; ++id) {
    ASSERT_TRUE(desk->Create(id).ok() && desk->Write(id, 0, 'z', 512).ok());
    EXPECT_NE(FileOf(PathOf(id)), FileOf(link));
    EXPECT_NE(FileOf(PathOf(id)), FileOf(checkpoint + "/2"));
  }
  std::ifstream in(link, std::ios::binary);
  const std::string bytes(std::istreambuf_iterator<char>(in), {});
  EXPECT_EQ(bytes, std::string(kSegmentBytes, 'a'));
}

TEST_F(FileStorageTest, WhatOthersFillTheDeviceWithTakesNothingOfTheReserve) {
  test::SmallDevice device(32);
  if (!device.mounted()) GTEST_SKIP() << "mounting a file system is not allowed here";
  const std::string others = device.path() + "/others";
  Open({.directory = device.path() + "/data", .free_files_max = 0});
  storage->SetReserve({2, 1, 2});
  ASSERT_TRUE(desk->Create(1).ok() && desk->Create(2, WriteBack::kLazily).ok());
  std::ofstream(others) << std::string(40 << 20, 'o') << std::flush;
  EXPECT_EQ(desk->Create(3).code(), StatusCode::kResourceExhausted);
  EXPECT_TRUE(desk->CreateFrom(Reserve::kMerges, 3).ok());
  EXPECT_TRUE(desk->Write(3, 0, 'm', 512).ok());
  ASSERT_TRUE(desk->Create(4, WriteBack::kLazily, Reserve::kLogs).ok());
  EXPECT_TRUE(desk->Write(4, 0, 'l', 512).ok());
  // What is removed is the reserve's at once, however it was written: nobody else can have it meanwhile.
  ASSERT_TRUE(storage->Remove(SegmentId{2}).ok());
  ASSERT_TRUE(storage->Remove(SegmentId{4}).ok());
  EXPECT_TRUE(desk->FillReserve().ok());
  EXPECT_EQ(storage->Space()->reserve_held, 5u);
  EXPECT_EQ(desk->Create(5).code(), StatusCode::kResourceExhausted);
  EXPECT_TRUE(desk->Replace("MANIFEST", std::string(1 << 20, 'm')).ok()) << "of the reserve";
  EXPECT_LT(storage->Space()->reserve_held, 5u);
  std::filesystem::remove(others);
  EXPECT_TRUE(desk->Create(5).ok());
  EXPECT_EQ(storage->Space()->reserve_held, 5u);
  EXPECT_EQ(desk->Read(3, 511), 'm');
  desk.reset();
  storage.reset();
}

TEST_F(FileStorageTest, FoldersStaySmallAndGoWhenTheyAreEmpty) {
  Open({.free_files_max = 0});
  const uint64_t far = 3 * kSegmentsPerFolder + 1;
  ASSERT_TRUE(desk->Create(1).ok() && desk->Create(far).ok());
  const std::filesystem::path first = std::filesystem::path(PathOf(1)).parent_path();
  EXPECT_NE(first, std::filesystem::path(PathOf(far)).parent_path());
  ASSERT_TRUE(Remove(1).ok());
  EXPECT_FALSE(std::filesystem::exists(first));
  ASSERT_TRUE(desk->Create(2).ok());
  EXPECT_EQ(storage->List()->size(), 2u);
  Open();
  EXPECT_EQ(storage->List()->size(), 2u);
}

TEST_F(FileStorageTest, WhatWasNotFinishedIsCleanedUpAndStrangersAreLeftAlone) {
  Open();
  ASSERT_TRUE(desk->Create(1).ok());
  std::ofstream(folder.path() + "/MANIFEST.new") << "half";
  const std::filesystem::path here = folder.path();
  std::filesystem::create_directories(here / "segments/empty");
  std::filesystem::create_directories(here / "segments/2024");
  std::vector<std::filesystem::path> theirs = {
      std::filesystem::path(PathOf(1)).parent_path() / "notes.txt",
      here / "segments/2024/a.ts",
      here / "free/movie.mp4",
      here / "free/12.segment",
      here / "draft.new",
      here / "segments/x"};
  for (const auto& file : theirs) std::ofstream(file) << "hello";
  theirs.push_back(here / "segments/empty");
  Open();
  EXPECT_FALSE(std::filesystem::exists(here / "MANIFEST.new"));
  EXPECT_EQ(storage->List()->size(), 1u);
  for (const auto& file : theirs) EXPECT_TRUE(std::filesystem::exists(file)) << file;
}

TEST_F(FileStorageTest, WithoutDirectIoTheSameHolds) {
  for (const IoEngine engine : {IoEngine::kIoUring, IoEngine::kThreads}) {
    Open({.engine = engine, .direct = DirectIo::kOff});
    const uint64_t id = engine == IoEngine::kIoUring ? 1 : 2;
    ASSERT_TRUE(desk->Create(id).ok() && desk->Write(id, 3, 'a', 9).ok() && desk->Sync(id).ok());
    Open({.engine = engine});
    EXPECT_EQ(desk->Read(id, 11), 'a');
  }
}

TEST_F(FileStorageTest, AFileThatWasCutOffIsAnErrorThatSaysWhere) {
  Open();
  ASSERT_TRUE(desk->Create(1).ok() && desk->Write(1, 0, 'a').ok());
  std::filesystem::resize_file(PathOf(1), kBlockBytes);
  EXPECT_EQ(desk->Read(1, 0), 'a');
  const Status read = desk->TryRead(1, 1);
  EXPECT_EQ(read.code(), StatusCode::kIoError);
  EXPECT_NE(read.message().find(PathOf(1) + ": the file ends at 4096"), std::string::npos) << read;
}

TEST_F(FileStorageTest, ADeviceThatIsReallyFullIsSaidAndServesAgainWhenThereIsRoom) {
  test::SmallDevice device(16);
  if (!device.mounted()) GTEST_SKIP() << "mounting a file system is not allowed here";
  Open({.directory = device.path() + "/data", .free_files_max = 2});
  uint64_t next = 1;
  Status full;
  for (; full.ok() && next < 20; ++next) full = desk->Create(next);
  EXPECT_EQ(full.code(), StatusCode::kResourceExhausted) << full;
  EXPECT_NE(full.message().find(PathOf(next - 1)), std::string::npos) << full;
  EXPECT_NE(full.message().find("no space left"), std::string::npos) << full;
  EXPECT_TRUE(desk->Write(1, 0, 'a').ok()) << "its room was reserved";
  const std::string large(4 << 20, 'm');
  EXPECT_EQ(desk->Replace("MANIFEST", large).code(), StatusCode::kResourceExhausted);
  ASSERT_TRUE(storage->Remove(SegmentId{2}).ok());
  ASSERT_TRUE(storage->Remove(SegmentId{3}).ok());
  EXPECT_TRUE(desk->Replace("MANIFEST", large).ok()) << "files that were kept make room";
  EXPECT_EQ(desk->Append("MANIFEST", large).code(), StatusCode::kResourceExhausted);
  EXPECT_EQ(desk->ReadFile("MANIFEST").size(), large.size()) << "what failed was cut off";
  ASSERT_TRUE(desk->Replace("MANIFEST", "small").ok());
  EXPECT_TRUE(desk->Create(next).ok());
  EXPECT_EQ(desk->Read(1, 0), 'a');
  desk.reset();
  storage.reset();
}

// ---- How a worker is woken

Task<void> ReadOnce(dsm::Worker& worker, Storage& storage, Io* io, int* ended) {
  const Status read = co_await storage.Run(worker, {io, 1});
  EXPECT_TRUE(read.ok()) << read;
  ++*ended;
}

struct WakeTest : FileStorageTest {
  Blocks bytes{1};
  Io io{IoKind::kRead, SegmentId{1}, 0, bytes.span()};
  int ended = 0;
  void SetUp() override {
    Open({.engine = IoEngine::kIoUring});
    ASSERT_TRUE(desk->Create(1).ok() && desk->Write(1, 0, 'a').ok());
  }
  /// As a server's thread does: blocks in its own epoll. False: nothing woke it for ten seconds.
  bool ServeUntilEnded(dsm::Worker& worker, int wanted) {
    const dsm::UniqueFd epoll(::epoll_create1(0));
    epoll_event event{EPOLLIN | EPOLLET, {}};
    EXPECT_EQ(::epoll_ctl(epoll.get(), EPOLL_CTL_ADD, worker.wake_fd(), &event), 0);
    worker.GoOnline();
    bool woken = true;
    while (woken && ended < wanted) {
      if (worker.RunOnce(dsm::Worker::Idle::kReturn)) continue;
      worker.set_sleeping(true);
      // An I/O that ends may interrupt the wait instead (io_uring's task work).
      if (worker.may_block()) {
        const int events = ::epoll_wait(epoll.get(), &event, 1, 10'000);
        woken = events > 0 || (events < 0 && errno == EINTR);
      }
      worker.set_sleeping(false);
    }
    worker.GoOffline();
    return woken;
  }
};

TEST_F(WakeTest, AServersOwnWaitIsWokenByIosAndByOtherThreads) {
  dsm::Worker& worker = desk->worker();
  for (int round = 1; round <= 200; ++round) {
    worker.Spawn(ReadOnce(worker, *storage, &io, &ended));
    EXPECT_TRUE(worker.waits_for_sources());
    ASSERT_TRUE(ServeUntilEnded(worker, round));
    // In between a wait in the ring, which polls the wake_fd itself.
    if (round % 10 == 0) {
      EXPECT_EQ(desk->Read(1, 0), 'a');
    }
  }
}

/// A transport that has to be polled, so that the worker waits in it.
class PolledTransport final : public dsm::Transport {
 public:
  void Post(dsm::Batch& batch) override { batch.CompleteWith(Status::Unavailable("none")); }
  size_t Poll() override { return 0; }
  void Wait(int wake_fd, uint64_t timeout_ns) override {
    ++waits;
    dsm::NullTransport().Wait(wake_fd, timeout_ns);
  }
  uint32_t idle_turns_before_wait() const override { return 0; }
  int waits = 0;
};

TEST_F(WakeTest, AWaitInTheTransportIsWokenByIos) {
  dsm::EpochDomain epochs;
  auto transport = std::make_unique<PolledTransport>();
  PolledTransport* const polled = transport.get();
  dsm::Worker worker({.transport = std::move(transport), .epochs = &epochs, .clock = &clock});
  // Most reads of a fast device have ended before there is anything to wait for.
  for (int round = 1; round <= 50 || (polled->waits == 0 && round <= 20'000); ++round) {
    worker.Spawn(ReadOnce(worker, *storage, &io, &ended));
    worker.RunUntilIdle();
    EXPECT_EQ(ended, round);
  }
  EXPECT_GT(polled->waits, 0);
}

TEST_F(WakeTest, AWaitInTheRingIsWokenByOtherThreads) {
  // The creation is done by another thread, and ends before the read or behind it.
  dsm::Worker& worker = desk->worker();
  struct Call {
    static Task<void> Make(dsm::Worker& on, Storage& disk, uint64_t id, int* count) {
      const Status made = co_await disk.Create(on, SegmentId{id}, Making{});
      EXPECT_TRUE(made.ok()) << made;
      ++*count;
    }
  };
  int made = 0;
  for (int round = 1; round <= 50; ++round) {
    worker.Spawn(ReadOnce(worker, *storage, &io, &ended));
    worker.Spawn(Call::Make(worker, *storage, 1 + static_cast<uint64_t>(round), &made));
    worker.RunUntilIdle();
    EXPECT_EQ(made, round);
    EXPECT_EQ(ended, round);
  }
}

TEST_F(WakeTest, ARingMayBeClosedByAThreadThatHasOneOfItsOwn) {
  EXPECT_EQ(desk->Read(1, 0), 'a');
  std::unique_ptr<Desk> others;
  std::thread other([&] {
    others = std::make_unique<Desk>(storage.get(), &clock);
    EXPECT_EQ(others->Read(1, 0), 'a');
  });
  other.join();
  others.reset();
  EXPECT_EQ(desk->Read(1, 0), 'a');
}

TEST_F(WakeTest, AWorkerMayBeUsedByAnotherThreadWhenNothingIsUnderWay) {
  EXPECT_EQ(desk->Read(1, 0), 'a');
  std::thread other([&] { EXPECT_EQ(desk->Read(1, 0), 'a'); });
  other.join();
  EXPECT_EQ(desk->Read(1, 0), 'a');
}

}  // namespace
}  // namespace farleaf::index::storage
