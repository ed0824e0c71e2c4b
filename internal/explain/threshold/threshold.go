// Package threshold has the numbers that decide what is believed, one for each word that is meant: a few, enough, some, most. A rule asks
// "do most of them?", and what most is, stands here, for all rules. A rule with a number of its own needs a reason of its own: a clock of the
// kernel or the runtime, a cost, what a user was told.
package threshold

// Counts.
const (
	// Repeats times is a habit: twice may be chance.
	Repeats = 3
	// SmallSample are below this: what five of five do comes by chance once in thirty times.
	SmallSample = 5
	// MedianSample to tell a median or a share of: of twenty, a half is known within a quarter.
	MedianSample = 20
	// TailSample are needed for a 99th percentile, and for a share within a tenth.
	TailSample = 100
)

// Shares of a whole: of time, of requests, of waits.
const (
	// NoiseShare is less than two runs of the same program differ by.
	NoiseShare = 0.01
	// MinorShare is not worth a reader's time.
	MinorShare = 0.05
	// NoticeableShare is the least that somebody who fixes it would notice.
	NoticeableShare = 0.1
	// MajorShare can be the fault.
	MajorShare = 0.2
	// Half: from here on it is the rule, and what is left the exception.
	HalfShare = 0.5
	// MostShare leaves less than Much.
	MostShare = 1 - MajorShare
	// NearlyAllShare leaves less than Some.
	NearlyAllShare = 1 - NoticeableShare
)

// FarFactor is by how many times something must be more for that to be no accident of measuring.
const FarFactor = 3

// Times, in ns.
const (
	// ThreadWakeNS is less than the runtime takes to hand a goroutine over to a thread that sleeps.
	ThreadWakeNS = 20e3
	// IdleCheckNS is what a goroutine does at most that looks and finds nothing to do.
	IdleCheckNS = 50e3
	// LoopbackNS is what a message takes at most from one socket of a machine that is not busy to another one.
	LoopbackNS = 200e3
	// TimeSliceNS is what the runtime lets a goroutine compute before others have their turn.
	TimeSliceNS = 10e6
	// PatienceNS is how long people and clients wait before they give up.
	PatienceNS = 1e9
	// SampledRunNS is how much must have run for a clock of 100 a second, of CPU samples and of the kernel, to tell shares of it.
	SampledRunNS = MedianSample * 10e6
)
