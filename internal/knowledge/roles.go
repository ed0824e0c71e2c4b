package knowledge

import (
	_ "embed"
	"slices"
	"sync"
)

// A Role is what a function does, as far as it matters to the engine. roles.tsv has the name of each role and its
// meaning, in this order.
type Role uint8

const (
	resolved Role = iota // the name was looked up; not in roles.tsv
	Stdlib
	NonStdlib
	Runtime
	StackBase
	PassThroughHandler

	// Servers and their handlers.
	KnownServer
	Accept
	HTTP1Connection
	RequestPeek
	HeaderRead
	HandlerEntry
	ResponseFinish
	BufferFlush
	ChunkWrite
	ServerHandler
	HTTP2Stream
	HTTP2Reader
	GRPCPackage
	GRPCStream
	GRPCWorker
	GRPCMethod
	GRPCMessageRead
	GRPCUnary
	GRPCUnaryAnswer
	HandlerRoot
	HandlerLookup
	HandlerCaller
	TimeoutHandler
	TimeoutGoroutine
	Observer
	Monitoring
	RequestUpkeep
	AnswerWrite
	ClientWait
	ResponseCopy

	// WebSockets.
	WebSocketConnection
	WebSocketRead
	MessageBegin
	MessageRest

	// Functions that start goroutines or run in loops.
	ProtocolLibrary
	GenericStarter
	Benchmark
	Test
	TraceRecorder
	Fetch
	BlockingCall

	// Calls of other services and of the system.
	ClientCall
	PeerCall
	HTTP1RoundTrip
	HTTP1ClientReader
	ClientWriter
	HTTP2ClientReader
	HTTP2ClientStream
	HTTP2ClientWait
	GRPCAnswerRead
	ResponseBody
	AnswerRead
	Connecting
	Dial
	DNS
	TLS
	TLSHandshake
	ConnectionRead
	PacketRead
	ReadinessWait
	ConnectionWrite
	Socket
	SocketWrite
	ChildProcess
	CCall
	CCallback
	File
	FileWrite
	DirectoryRead
	FileStatus
	FileSync
	FileLock
	DatabaseLock
	Transaction
	Logger
	Operation
	TransactionBody
	CacheLoad
	ConnectionCheck
	StatementPrepare
	BodyClose
	Constructor
	Drain
	SetUp
	DeliberateCost
	DataCopy
	FirstUse

	// Waits.
	NetworkWait
	SleepWait
	SelectWait
	ForeverWait
	ReceiveWait
	SendWait
	CondWait
	SemaphoreWait
	CommonWait
	Poller
	FDReadLock
	Mutex
	RWMutex
	ReadLock
	WriteLock
	ReadUnlock
	Once
	WaitGroup
	Broadcast
	Handover
	PoolWait
	ConnectionWait
	UnorderedPool
	Semaphore
	SemaphoreAcquire
	FanOutLimiter
	EventLoop
	Errgroup
	RateLimiter
	SharedLock
	ContinueWait
	DialFallback
	FlowControlWait
	WindowUpdate
	PeerWindowUpdate
	FrameWrite
	BodyWrite
	BatchInterval
	Pause
	Deadline
	ContextDeadline
	HTTPTimeout

	// The runtime's own work.
	WorldStart
	WorldStop
	GCSemaphore
	GCWork
	MarkAssist
	MarkWorker
	GCMark
	ForcedGC
	Yield
	FinalizerLoop
	Scheduler
	Tracing

	roleCount
)

//go:embed roles.tsv
var rolesText string

// roleNames returns the names of the roles, by role.
var roleNames = sync.OnceValue(func() []string {
	names := []string{""}
	for _, columns := range rows(rolesText) {
		names = append(names, columns[0])
	}
	return names
})

// roleOf returns the role with this name in roles.tsv; false if there is none.
func roleOf(name string) (Role, bool) {
	i := slices.Index(roleNames(), name)
	return Role(i), i > 0
}

// Roles is a set of roles: bit r%64 of word r/64 is for role r.
type Roles [3]uint64

var _ [64*len(Roles{}) - int(roleCount)]struct{} // a role without a bit does not compile

// SetOf returns the set of the given roles.
func SetOf(list ...Role) (s Roles) {
	for _, r := range list {
		s[r/64] |= 1 << (r % 64)
	}
	return s
}

// Has reports whether the set has a role.
func (s Roles) Has(r Role) bool { return s[r/64]>>(r%64)&1 != 0 }

// BelongsToStart reports whether a function does work of a service's start: it sets something up, or uses it for the first time.
func (s Roles) BelongsToStart() bool { return s.Has(SetUp) || s.Has(FirstUse) }

// NamesWork reports whether a function names the work of the code below it, in which its callers can change no line.
func (s Roles) NamesWork() bool { return s.BelongsToStart() || s.Has(DeliberateCost) }

// Union returns the roles of both sets.
func (s Roles) Union(o Roles) Roles { return Roles{s[0] | o[0], s[1] | o[1], s[2] | o[2]} }

// Minus returns the roles of s that o does not have.
func (s Roles) Minus(o Roles) Roles { return Roles{s[0] &^ o[0], s[1] &^ o[1], s[2] &^ o[2]} }
