// Package vm boots small virtual machines whose only program is a static Go binary. They check the service packages' claims
// about cgroups on real kernels with every layout of cgroups, independent of the machine that runs the tests.
//
// A boot has one kernel and one layout (v1, v2, hybrid). Its init, the program in guest, mounts the layout, runs the checks of
// package check one after another, writes a line of JSON per check to the second serial port, and powers off. TestVM turns
// those lines into subtests:
//
//	WHYLATE_VM=1 go test ./lab/vm -run TestVM -v
//
// It needs qemu-system-x86_64 and kernels; .ci/vm.sh installs the first, fetches the second and runs the tests. Without
// hardware virtualisation a boot takes 5 to 15 seconds: speed inside means nothing, but counters and limits are real.
//
// TestHost runs the same checks on the machine itself, if it is Linux and the tests run as root.
//
// To add a check, write it in a file of package check and list it in check.All; a check that needs a separate process inside a
// group adds a child to check.Children.
package vm
