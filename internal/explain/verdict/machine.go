package verdict

import (
	"slices"

	"github.com/whylate/whylate/report"
)

// Other processes that use the CPUs and a fault of the service often make the same requests late. Which is named first is decided by
// how much of the slow requests' time each of them took.

// tookMore reports whether other processes (finding machine) took more of the slow requests' time than a fault of the same group.
func tookMore(machine, fault *report.Finding, verdicts []report.Verdict) bool {
	if fault == nil || machine.Group != fault.Group || !machine.Severity.IsMajor() {
		return false
	}
	i := slices.IndexFunc(verdicts, func(v report.Verdict) bool { return v.Group == fault.Group })
	return i >= 0 && lossShare(machine) > faultShare(&verdicts[i], fault)
}

// faultShare returns the share of a verdict's time that a fault takes. Not all the time in a queue is the fault's, because those ahead wait
// for CPUs as well, and not all waits to run are.
func faultShare(v *report.Verdict, fault *report.Finding) (share float64) {
	if fault.Queue != nil && fault.Decided != nil || isOfRuntime(fault.Cause) {
		return lossShare(fault)
	}
	for i := range v.Causes {
		share += shareOfFinding(&v.Causes[i], fault)
	}
	return share
}

// lossShare returns the share of the slow requests' time that a fix of a finding saves, or, if all requests decided its severity, of
// the time of all.
func lossShare(f *report.Finding) float64 {
	if f.Decided != nil {
		return f.Decided.Share
	}
	return f.Share
}

// firstOfService returns the first finding that is not about the machine; nil if there is none.
func firstOfService(list []*report.Finding) *report.Finding {
	for _, f := range list {
		if !f.Code.OfMachine() {
			return f
		}
	}
	return nil
}

// isMachineShared reports whether a finding says that other processes use the machine's CPUs.
func isMachineShared(r *report.Report) bool {
	return slices.ContainsFunc(r.Findings, func(f report.Finding) bool { return f.Code.OfMachine() && f.Ignored == "" })
}
