package groups

import (
	"maps"
	"slices"

	"github.com/whylate/whylate/internal/explain/entry"
	"github.com/whylate/whylate/internal/explain/path"
)

// Merge combines the tables of all workers, and decides how finely handlers are distinguished (refineHandlers). On entry ts
// translates each worker's ids to those of the first worker, on return to the final groups. finalIDs translates the first
// worker's group ids to the final ones. Nothing may be added afterwards.
func (s *Sum) Merge(ts []path.Translation) (finalIDs []path.GroupID) {
	merged := s.tables[0]
	for i, t := range s.tables[1:] {
		merged.merge(t, &ts[i+1])
	}
	finalIDs = s.refineHandlers()
	// What refers to groups by id is merged after the ids are final.
	runs, samples := make(concurrentRuns), newRunSamples(merged.stage)
	for i, t := range s.tables {
		for id, g := range ts[i].Groups {
			ts[i].Groups[id] = finalIDs[g]
		}
		runs.merge(t.concurrentRuns, &ts[i])
		samples.merge(&t.runSamples, &ts[i])
	}
	merged.concurrentRuns, merged.runSamples = runs, samples
	return finalIDs
}

// merge adds the groups, blocks and traversals of another worker's table; tr translates that worker's ids.
func (t *table) merge(other *table, tr *path.Translation) {
	t.observerRequests += other.observerRequests
	if other.blockMin != 0 && (t.blockMin == 0 || other.blockMin < t.blockMin) {
		t.blockMin = other.blockMin
	}
	t.blockMax = max(t.blockMax, other.blockMax)
	for t.blockShift < other.blockShift {
		t.doubleBlocks()
	}
	for other.blockShift < t.blockShift {
		other.doubleBlocks()
	}
	t.traversals.merge(&other.traversals)
	for id, otherGroup := range other.groups {
		if otherGroup != nil {
			t.mergeGroup(tr.Groups[id], otherGroup, tr.Causes)
		}
	}
	t.fitBlocks()
}

// mergeGroup adds a group to the one with this id. causes translates the cause ids of addend to this table's; nil: they are the
// same.
func (t *table) mergeGroup(id path.GroupID, addend *group, causes []path.CauseID) {
	group := t.groupByID(id)
	group.offerHandlerFrame(t.stage.Syms, addend.handlerFrame)
	group.starter.add(addend.starter)
	group.latencies.merge(&addend.latencies)
	group.readyTimes.merge(&addend.readyTimes)
	group.pollGaps.merge(&addend.pollGaps)
	group.beforeMark.merge(&addend.beforeMark)
	group.offerMarkKind(t.stage.Syms, addend.markKind)
	for status, n := range addend.statuses {
		group.addStatus(status, n)
	}
	group.causeCells.merge(&addend.causeCells, causes, (*cell).add)
	group.sampleCounts.merge(&addend.sampleCounts, causes, (*cell).add)
	group.spreads.merge(&addend.spreads, causes, (*spread).add)
	for bucket, times := range addend.spreadWeights {
		entry.Put(&group.spreadWeights, bucket, group.spreadWeights[bucket]+times)
	}
	for bi, b := range addend.blocks {
		group.blockByNumber(bi).merge(b)
	}
	group.cutAtStart += addend.cutAtStart
	group.multiStack += addend.multiStack
	group.hasJoined = group.hasJoined || addend.hasJoined
	group.openCount += addend.openCount
	group.openWaits.merge(addend.openWaits, causes)
	if addend.oldestStart != 0 && group.isOlder(addend.oldestStart, addend.oldestG) {
		group.oldestStart, group.oldestG, group.oldestSite = addend.oldestStart, addend.oldestG, addend.oldestSite
	}
}

// sortedKeys returns a map's keys in order.
func sortedKeys[K int32 | int64, V any](m map[K]V) []K { return slices.Sorted(maps.Keys(m)) }
