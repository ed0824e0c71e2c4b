// Package threshold has the numbers that decide what is believed, one for each word that is meant: a few, enough, some, most. A rule asks
// "do most of them?", and what most is, stands here, for all rules. A rule with a number of its own needs a reason of its own: a clock of the
// kernel or the runtime, a cost, what a user was told.
package threshold

// Counts.
const (
	// Several times is a habit: twice may be chance.
	Several = 3
	// Few are below this: what five of five do comes by chance once in thirty times.
	Few = 5
	// Enough to tell a median or a share of: of twenty, a half is known within a quarter.
	Enough = 20
	// Many are needed for a 99th percentile, and for a share within a tenth.
	Many = 100
)

// Shares of a whole: of time, of requests, of waits.
const (
	// Speck is less than two runs of the same program differ by.
	Speck = 0.01
	// Little is not worth a reader's time.
	Little = 0.05
	// Some is the least that somebody who fixes it would notice.
	Some = 0.1
	// Much can be the fault.
	Much = 0.2
	// Half: from here on it is the rule, and what is left the exception.
	Half = 0.5
	// Most leaves less than Much.
	Most = 1 - Much
	// NearlyAll leaves less than Some.
	NearlyAll = 1 - Some
)

// Far is by how many times something must be more for that to be no accident of measuring.
const Far = 3

// Times, in ns.
const (
	// Blink is less than the runtime takes to hand a goroutine over to a thread that sleeps.
	Blink = 20e3
	// Turn is what a goroutine does at most that looks and finds nothing to do.
	Turn = 50e3
	// Loopback is what a message takes at most from one socket of a machine that is not busy to another one.
	Loopback = 200e3
	// Slice is what the runtime lets a goroutine compute before others have their turn.
	Slice = 10e6
	// Patience is how long people and clients wait before they give up.
	Patience = 1e9
	// Running is how much must have run for a clock of 100 a second, of CPU samples and of the kernel, to tell shares of it.
	Running = Enough * 10e6
)
