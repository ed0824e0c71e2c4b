// Package kernelprobe records the kernel's events about a process of this machine: when its threads got and lost a CPU and why, what ran
// instead, and when bytes reached its sockets. It loads the programs of bpf/probe.bpf.c and writes their events in the format of package
// kernelevents.
//
//	p, err := kernelprobe.Start(pid)
//	...
//	rec := p.Stop()   // rec.Data is kernel.bin
//
// It needs Linux 5.8 with type information (CONFIG_DEBUG_INFO_BTF), CAP_BPF and CAP_PERFMON. A host may refuse single programs: the
// recording lists them, and the answers that need them stay inferred.
//
// The object files are in the repository, because users install the tool with "go install". go generate makes them again.
package kernelprobe

//go:generate bpf/generate.sh
