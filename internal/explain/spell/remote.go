package spell

import (
	"slices"

	"github.com/whylate/whylate/internal/explain/cause"
	"github.com/whylate/whylate/internal/explain/path"
	"github.com/whylate/whylate/internal/trace/tracefmt"
	"github.com/whylate/whylate/report"
)

// A RemoteCause is what another service did while a request waited for it over the network, in the form of that service's
// report: cause.Segment.Remote is its index in Speller.Remotes. If IsWay, it is the time on the way there and back instead:
// only Service and Code are set.
type RemoteCause struct {
	Service string
	// Callee is the service that was called. It waited for Service, or is that service.
	Callee string
	Code   cause.Cause
	IsWay  bool
	report.Segment
	SiteFrom string
	Call     string
	// Row is equal for causes that are one row of a report: they differ only in their wait chains.
	Row int32
}

// Remote returns the remote cause with an index; nil if the index is 0 or unknown.
func (s *Speller) Remote(index int32) *RemoteCause {
	if index <= 0 || int(index) >= len(s.Remotes) {
		return nil
	}
	return &s.Remotes[index]
}

// CauseOf returns the report's name of a key's cause.
func (s *Speller) CauseOf(key *path.CauseKey) report.CauseName {
	if remote := s.Remote(key.Remote); remote != nil {
		return Cause(remote.Code)
	}
	return Cause(s.Settlement[key.Code])
}

// RemoteVias returns the wait chain that leads to a remote cause: the waits of this service (chain), its wait at site for the
// service remote.Callee in the function call, and the waits within that service. If the cause is the time on the way
// (remote.IsWay), these are only the waits of this service. starter is the line that started the request's goroutine; it is the
// caller of site if no other service code is known. remote must not be nil.
func (s *Speller) RemoteVias(chain []path.ChainWait, site, starter tracefmt.FrameID, call tracefmt.StringID, remote *RemoteCause) []report.Via {
	vias := s.Vias(chain)
	if remote.IsWay {
		return vias
	}
	wait := report.Via{Wait: report.WaitPeer, Site: s.SiteFor(site, s.ServiceFrame(site, chain, starter), vias), Call: s.Syms.String(call), Service: remote.Callee}
	return slices.Concat(vias, []report.Via{wait}, remote.Via)
}
