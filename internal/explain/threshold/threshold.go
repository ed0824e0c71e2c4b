// Package threshold defines the statistical thresholds that all rules share: minimum counts, shares and durations. A rule
// asks, say, whether most requests do something, and compares with MostShare. A rule with its own number needs a reason: a
// clock of the kernel or the runtime, a cost, or a limit that users know.
package threshold

// Minimum counts.
const (
	// Repeats is how often something must happen to be no coincidence: twice may be chance.
	Repeats = 3
	// SmallSample: fewer are too few. What holds for five of five happens by chance once in thirty times.
	SmallSample = 5
	// MedianSample is enough for a median or a share: of twenty, a half is known within a quarter.
	MedianSample = 20
	// TailSample is enough for a 99th percentile, and for a share within a tenth.
	TailSample = 100
)

// Shares of a whole: of time, of requests, of waits.
const (
	// NoiseShare is less than the difference of two runs of the same program.
	NoiseShare = 0.01
	// MinorShare: anything less is not worth a reader's time.
	MinorShare = 0.05
	// NoticeableShare is the least gain that is noticed.
	NoticeableShare = 0.1
	// MajorShare is enough to be the main problem.
	MajorShare = 0.2
	// HalfShare separates the rule from the exception.
	HalfShare = 0.5
	// MostShare leaves less than MajorShare.
	MostShare = 1 - MajorShare
	// NearlyAllShare leaves less than NoticeableShare.
	NearlyAllShare = 1 - NoticeableShare
)

// FarFactor is by how many times a number must exceed another one for that to be no accident of measurement.
const FarFactor = 3

// Times, in ns.
const (
	// ThreadWakeNS is less than the runtime needs to hand a goroutine over to a sleeping thread.
	ThreadWakeNS = 20e3
	// IdleCheckNS is the most that a goroutine needs to check for work and find none.
	IdleCheckNS = 50e3
	// LoopbackNS is the most that a message needs between two sockets of a machine that is not busy.
	LoopbackNS = 200e3
	// TimeSliceNS is how long the runtime lets a goroutine run before it preempts it for others.
	TimeSliceNS = 10e6
	// PatienceNS is how long people and clients wait before they give up.
	PatienceNS = 1e9
	// SampledRunNS is how much must have run for a clock of 100 Hz, of CPU samples and of the kernel, to measure shares of
	// it.
	SampledRunNS = MedianSample * 10e6
)
