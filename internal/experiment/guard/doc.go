// Package guard runs a command so that none of its processes survives the process that started it,
// even if that one is killed by SIGKILL. A separate process, the guard, starts the command, adopts
// orphaned descendants of the command, and kills all of them when its own standard input ends. Linux
// only.
package guard

// A Command is the command for a guard to start. It is a line of JSON on the guard's standard input.
type Command struct {
	Args      []string `json:"args"`
	Env       []string `json:"env"`
	Dir       string   `json:"dir,omitempty"`    // "" means the guard's own
	GroupDirs []string `json:"groups,omitempty"` // directories of the command's cgroup
	// RemoveGroup makes the guard kill every process in the cgroup and remove the cgroup.
	RemoveGroup bool  `json:"remove"`
	CPUs        []int `json:"cpus,omitempty"` // CPUs that it may run on; empty means those of the guard
}
