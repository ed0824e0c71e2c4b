package request

import (
	"cmp"

	"github.com/whylate/whylate/internal/explain/entry"
	"github.com/whylate/whylate/internal/trace/timeline"
	"github.com/whylate/whylate/internal/trace/tracefmt"
)

// A program may start a million goroutines a second at one line. They differ in their ids and times only, so everything that
// their births show is found once for all of them, and of their ends only the time is read.

// A birthKey identifies births that differ in their goroutine and time only.
type birthKey struct {
	creator      uint64
	start, stack tracefmt.StackID
}

// A birthGroup counts births with the same key. The creator is neither a job nor a server's goroutine, so none of the
// goroutines is a part of other work.
type birthGroup struct {
	birthKey
	startFunc *startFuncStats
	kind      *jobKind
	isNamed   bool // the name of the jobs is known
	count     int
}

// uniformJobs counts jobs.
type uniformJobs struct {
	count          int
	lifeNS         int64
	lastEnd        int64
	isServiceStart bool // the start function is service code
}

// groupOf returns the group of a birth, created on first use; nil if the birth must be inspected on its own (addJob). last is
// the group of the birth before, or nil.
func (j *jobSource) groupOf(c *collector, g *timeline.Gen, b *timeline.Birth, last *birthGroup) *birthGroup {
	key := birthKey{b.Creator, b.Start, b.Stack}
	if last != nil && last.birthKey == key {
		return last
	}
	if group := j.birthGroups[key]; group != nil {
		return group
	}
	if _, hasBirth := g.BirthOf(b.Creator); hasBirth || j.states[g.Number(b.Creator)] != 0 || c.isServing(b.Creator, b.Stack) ||
		c.isAnnotatedAt(b.Creator, g.End) || len(c.annotatedSpans[b.Creator]) > 0 {
		return nil
	}
	group := &birthGroup{birthKey: key}
	job := newJob(c, b)
	group.startFunc, group.kind = j.kindFor(c, &job)
	group.kind.uniform.isServiceStart = c.stackInfo(b.Start).outerServiceFrame != 0
	group.isNamed = j.isNamed(group.kind)
	j.birthGroups[key] = group
	return group
}

// addToGroup counts the birth of goroutine number in a group of equal births. If the goroutine lives longer than the generation
// it is stored as a job; if nothing distinguishes it, its end is only counted.
func (j *jobSource) addToGroup(c *collector, g *timeline.Gen, group *birthGroup, number uint32, b *timeline.Birth) {
	group.count++
	kind := group.kind
	end, ends := j.addEnding(c, g, kind, number, b.Start, false)
	switch {
	case !ends:
		job := newJob(c, b)
		job.kind = kind
		j.storeJob(number, b.G, job)
	case !c.annotated[b.G] && !c.isServed(b.G):
		if j.states[number] |= isUniform; !group.isNamed && g.AnyStackOf(number) == 0 {
			j.states[number] |= hasNoStack
		}
		kind.uniform.count++
		kind.uniform.lifeNS += end - b.Time
		kind.uniform.lastEnd = max(kind.uniform.lastEnd, end)
	}
}

// addGroups adds the births of all groups to the statistics of their start functions and kinds.
func (j *jobSource) addGroups(c *collector) {
	for _, group := range j.birthGroups {
		origin := group.kind.originStats
		if group.kind.firstEnd != 0 {
			group.kind.laterStarts += group.count
		}
		if group.creator == 0 {
			origin.timerCount += group.count
		}
		if starter := c.stackInfo(group.stack).startFunc; starter != 0 {
			origin.starters[starter] += group.count
		}
		origin.inspected += group.count
		origin.total += group.count
		group.startFunc.count += group.count
		group.startFunc.allParts = false
	}
}

// canCount reports whether enough uniform jobs of a kind were inspected: the others show nothing new but perhaps their name.
func (j *jobSource) canCount(kind *jobKind) bool {
	return kind.areJobs && kind.uniform.count > 0 && !kind.isMeasured &&
		(kind.uniform.isServiceStart || kind.key.starterFrame != 0 && kind.endedCount >= inspectedPerFunc)
}

// isNamed reports whether the name of the jobs of a kind is known.
func (j *jobSource) isNamed(kind *jobKind) bool {
	_, isNamed := j.namesByStarter[kind.key.starterFrame]
	return kind.uniform.isServiceStart || isNamed
}

// countRest reports whether the uniform job of goroutine id, with a state, is only counted, as those before it have shown. Once the
// name of its kind is known, it counts all further ones, and drops the iterations of their goroutines, as emitPending does.
func (j *jobSource) countRest(c *collector, g *timeline.Gen, state jobState, id uint64) bool {
	kind := j.kindList[state>>jobStateBits]
	if !j.canCount(kind) || !j.isNamed(kind) {
		return j.canCount(kind) && state&hasNoStack != 0
	}
	for _, goroutine := range j.loops.candidates {
		if s := j.states[g.Number(goroutine.id)]; goroutine.id >= id && goroutine.iteration != nil && s&isUniform != 0 && j.kindList[s>>jobStateBits] == kind {
			entry.Put(&j.droppedLoops, goroutine.id, true)
		}
	}
	j.endUniform(c, kind)
	return true
}

// isCounted reports whether a goroutine with a state is a job that is only counted.
func (j *jobSource) isCounted(s jobState) bool {
	return s&isUniform != 0 && j.kindList[s>>jobStateBits].isCounted
}

// endUniform adds the ends of the generation's jobs of a kind that are only counted to the statistics of the kind.
func (j *jobSource) endUniform(c *collector, kind *jobKind) {
	kind.isCounted = true
	kind.firstEnd = cmp.Or(kind.firstEnd, kind.uniform.lastEnd)
	kind.endedCount += kind.uniform.count
	kind.lifeNS += kind.uniform.lifeNS
	kind.originStats.emittedNS += kind.uniform.lifeNS
	kind.originStats.isLibraryWait = kind.areLibraryWaits()
	j.emitPending(c, kind)
	if !kind.uniform.isServiceStart {
		j.addGroupKey(c, kind, cmp.Or(j.namesByStarter[kind.key.starterFrame], kind.key.starterFrame))
	}
}

// emitCounted emits the request of goroutine id, a job that ended in generation g and was only counted. number is its number
// there.
func (j *jobSource) emitCounted(c *collector, g *timeline.Gen, id uint64, number uint32) {
	b, _ := g.BirthAt(number)
	end, _ := g.DeathOf(number)
	job := newJob(c, &b)
	job.kind = j.kindList[j.states[number]>>jobStateBits]
	request := j.requestOf(c, &job, id, end)
	c.emitJob(&request)
}

// emitAllCounted emits the jobs of a generation that were only counted because the program might have been a batch program.
func (j *jobSource) emitAllCounted(c *collector, g *timeline.Gen) {
	g.EachInOrder(func(id uint64, number uint32) {
		if j.isCounted(j.states[number]) {
			j.emitCounted(c, g, id, number)
		}
	})
}
