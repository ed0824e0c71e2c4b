package report

// A PeerState is time of network waits in which the process at the other end of the connection, on the same host, was in one state.
type PeerState struct {
	// Process is its name with its number; several processes of one name are one.
	Process string        `json:"process"`
	State   PeerStateName `json:"state"`
	// Detail is, for cpu-wait, the process that had the CPU for most of it, for process the one that was waited for, for disk and other
	// the system call or the kernel's function.
	Detail string `json:"detail,omitempty"`
	// Unread reports that the peer's thread had not yet read the request: it was busy with other work.
	Unread  bool    `json:"unread,omitempty"`
	TotalNS int64   `json:"total_ns"`
	Share   float64 `json:"share"` // of the wait
	// Text says what the process did.
	Text string `json:"text"`
}

// A PeerStateName is a state of the peer's thread that read the request and sends the answer, or of the bytes.
type PeerStateName string

// States of peers.
const (
	PeerRunning   PeerStateName = "running"
	PeerCPUWait   PeerStateName = "cpu-wait"
	PeerThrottled PeerStateName = "throttled" // a CPU quota held it back
	PeerStopped   PeerStateName = "stopped"
	PeerDisk      PeerStateName = "disk"
	PeerLock      PeerStateName = "lock" // or for another of its threads
	PeerTimer     PeerStateName = "timer"
	PeerNetwork   PeerStateName = "network"
	PeerPipe      PeerStateName = "pipe"
	PeerProcess   PeerStateName = "process" // it was asleep until another process woke it
	PeerOther     PeerStateName = "other"   // it was asleep
	PeerOnTheWay  PeerStateName = "way"     // the request or the answer was on the way
	PeerArrived   PeerStateName = "arrived" // the answer had arrived, and its reader did not run yet
)

// AddPeerState adds the time of x to the element with the same process, state and detail, in place, or else appends x. It returns the list.
func AddPeerState(list []PeerState, x PeerState) []PeerState {
	for i := range list {
		if y := &list[i]; y.Process == x.Process && y.State == x.State && y.Detail == x.Detail && y.Unread == x.Unread {
			y.TotalNS += x.TotalNS
			return list
		}
	}
	return append(list, x)
}
