// Package systemtest tests the tool on services under real limits of Linux. Each test starts a service as a child process, in
// a control group with a CPU quota, with a backend that loses packets, or with a flight recorder under load, and compares the
// report with the kernel's counters, the service's own counts or the clients' clocks. The tests need root or minutes; testfull
// selects them.
package systemtest
