package words

// A Term is a word of reports and its meaning in plain English.
type Term struct{ Word, Meaning string }

// Glossary returns the words of reports that a reader may not know, in alphabetical order.
func Glossary() []Term {
	return []Term{
		{"band", "The requests of a group between two percentiles of latency, such as p90-99: those slower than nine in ten, without the slowest 1%."},
		{"cause", "What a request did at a moment of its time: computing, waiting for a CPU, for a lock, for the network and so on. The causes of a request add up to its latency."},
		{"confidence", "How likely it is that a finding is right, judged by the evidence of its kind in recordings with known faults."},
		{"critical path", "The chain of goroutines and waits that decided when a request ended. If goroutine A waits for B, B's time counts."},
		{"cross-check", "A prediction compared with requests of the same trace that met little of the cause anyway."},
		{"finding", "A fault that a rule found, with evidence, advice and a prediction. Its code, such as WL2001, leads to its page: whylate rules WL2001."},
		{"GC assist", "Work that a goroutine does for the garbage collector because it allocates faster than the collector can follow."},
		{"GOMAXPROCS", "How many Ps there are: how many goroutines can run Go code at the same time."},
		{"group", "Requests that are served by the same handler, or calls of the same function."},
		{"inferred", "A line that was not seen while it ran: events just before and after a short run name it."},
		{"mark phase", "The part of a garbage collection in which the heap is searched for live objects while the program runs."},
		{"P", "A processor of the Go scheduler. A goroutine needs one to run; there are GOMAXPROCS of them."},
		{"poll gap", "A time in which no P asked the kernel for network events. Messages that arrive meanwhile lie unread, before latency begins."},
		{"queue", "Requests that wait for their turn at a pool, a semaphore, a worker or a stream while others have it. The time has the cause queue; behind says what those ahead do."},
		{"quota", "A limit on the CPU time of a container in each period. When it is used up, the kernel stops all threads until the next period."},
		{"ready to run", "A goroutine could run, but has no P yet."},
		{"severity", "How much of the requests' time a finding has, in percent and in time: high, medium, low or info. --thresholds sets the limits."},
		{"site", "A place in the code: function, file and line. With a dependency's line comes the line of the service that called it."},
		{"stop of the world", "A moment in which the runtime stops all goroutines."},
		{"throttled", "Stopped by the kernel because the CPU quota is used up."},
		{"via", "The wait through which a request was held up by another goroutine, such as a channel or a lock."},
		{"while X ran", "X held the CPUs that waiting goroutines needed."},
	}
}
