// Mutations: deliberate faults of the protocol, which prove that the simulation's checkers find faults
// (test/simulation/README.md has the list). In the product Mutated is false at compile time, and nothing of
// them is left. Only the build of the mutation test defines FARLEAF_MUTABLE, for a second copy of the
// files that ask; there, the test's main program chooses one at run time.
//
// Thread rule: any thread; the choice is made before anything runs.
#pragma once

#include <cstdint>

namespace farleaf {

enum class Mutation : uint8_t {
  kNone,
  kSkipChecksum,               ///< a node is believed whatever its checksum and versions
  kNoFenceCheckOnLeaf,         ///< a leaf is taken to cover any key
  kAbsentFromStaleLeaf,        ///< a key that lies past a leaf's high fence is absent
  kReadAheadOfLock,            ///< the page is read in front of the CAS that locks it
  kUnlockBeforeWriteBack,      ///< the unlock stands ahead of the image
  kIgnoreFailedBatch,          ///< a write-back that failed is taken for done
  kRightUnlockedBeforeLeft,    ///< a split's new page is unlocked before anything links it
  kSplitUnlocksBeforePublish,  ///< a split's new page is unlocked before the parents are told
  kMergeKillsRightFirst,       ///< the right page dies before the left one has its entries
  kMergeForgetsParents,        ///< the parents are not told of a merge
  kRootSwappedByWrite,         ///< the root word is written, not swapped
  kScanSkipsFences,            ///< a scan takes the next leaf that it has, whatever its fences
  kReverseScanTrustsCache,     ///< a reverse scan takes the cached left neighbour unverified
  kValueIdUnchecked,           ///< a value block is believed without its unique id
  kValueHintUnchecked,         ///< ... if a hint led to it, whatever the leaf names
  kScanGuessUnchecked,         ///< a scan believes what a leaf was said to name, whatever it names
  kValueFreedFirst,            ///< the old value block is freed ahead of the leaf that names it
  kPageNeverFreed,             ///< the page that dies in a merge is not given back
  kPageFreedTwice,             ///< ... is given back twice
  kTakeOverWithoutFence,       ///< a lock is taken over from whoever has it
  kNoRedoRecord,               ///< write-backs leave no redo record
  kNoReplay,                   ///< a take-over unlocks, and replays nothing
  kNoRedoCopy,                 ///< a take-over leaves no copy of the record
  kHandOverBeforeWriteBack,    ///< a local waiter gets the lock before the image is in the pool
  kFenceDigestUnchecked,       ///< a part is believed whatever leaf it is of
  kPassedMarkIgnored,          ///< a key that is not in its home part is absent
  kPassedMarkForgotten,        ///< an entry goes past its home part, which does not say so
  kCombinesOtherLeaves,        ///< a change is made in a leaf that another cached path led to
  kServedBeforeWriteBack,      ///< a change made for another is told done before it is in the pool
  kScanTrustsOpenChains,       ///< a scan does not ask for the parts that entries went on to
  kScanTrustsPlacementHint,    ///< a scan believes what is remembered of a leaf's placement
  kJoinsReadInFlight,          ///< a get takes the answer of a READ that was posted before it began
  kParkedTurnKept,     ///< who waits for a redo slot keeps the page from those who may hold it
  kSlotKeptWhileBusy,  ///< who waits for a lock of another's keeps a slot that may be wanted there
  kNoUpkeep,           ///< a member that is idle lets go no lock that it has lost sight of
};
inline constexpr uint8_t kMutations = 36;

#ifdef FARLEAF_MUTABLE
bool Mutated(Mutation mutation);
#else
constexpr bool Mutated(Mutation) { return false; }
#endif

}  // namespace farleaf
