package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
)

// boot is the life of process 1: it powers the machine off at the end,
// whatever happened.
func boot() {
	defer syscall.Reboot(syscall.LINUX_REBOOT_CMD_POWER_OFF)
	if err := boots(); err != nil {
		fmt.Println("guest: boot:", err)
	}
}

func boots() error {
	for _, m := range []struct{ dir, fstype string }{
		{"/proc", "proc"}, {"/sys", "sysfs"}, {"/dev", "devtmpfs"}, {"/tmp", "tmpfs"},
	} {
		if err := os.MkdirAll(m.dir, 0o755); err != nil {
			return err
		}
		if err := syscall.Mount(m.fstype, m.dir, m.fstype, 0, ""); err != nil {
			return fmt.Errorf("mounting %s: %w", m.dir, err)
		}
	}
	cmdline, err := os.ReadFile("/proc/cmdline")
	if err != nil {
		return err
	}
	layout, pattern, program := "v2", "", ""
	for _, f := range strings.Fields(string(cmdline)) {
		if v, ok := strings.CutPrefix(f, "whylate.layout="); ok {
			layout = v
		}
		if v, ok := strings.CutPrefix(f, "whylate.run="); ok {
			pattern = v
		}
		if v, ok := strings.CutPrefix(f, "whylate.exec="); ok {
			program = v
		}
	}
	if err := mountLayout(layout); err != nil {
		return err
	}
	// The first serial port is the kernel's; the second is ours alone.
	out, err := os.OpenFile("/dev/ttyS1", os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	defer out.Close()
	if program != "" {
		cmd := exec.Command(program)
		cmd.Stdout, cmd.Stderr = out, os.Stdout
		return cmd.Run()
	}
	return runChecks(out, "/proc/self/exe", pattern)
}

// mountLayout mounts the cgroup hierarchies as a distribution would.
func mountLayout(layout string) error {
	const top = "/sys/fs/cgroup"
	if layout == "v2" {
		return mount("cgroup2", top, "cgroup2", "")
	}
	if err := mount("tmpfs", top, "tmpfs", "mode=755"); err != nil {
		return err
	}
	// Kernels leave v1 controllers out more and more: Debian's 6.12 has
	// neither memory nor cpuset there. In a hybrid they stay on v2.
	mounted := false
	for _, c := range []string{"cpu,cpuacct", "cpuset", "memory", "name=systemd"} {
		data := c
		if c == "name=systemd" {
			data = "none,name=systemd"
		}
		if layout == "hybrid" && c == "memory" {
			continue // so that a hybrid differs from v1 on every kernel
		}
		dir := filepath.Join(top, strings.TrimPrefix(c, "name="))
		if err := mount("cgroup", dir, "cgroup", data); err != nil {
			fmt.Println("guest: v1 controller not offered:", err)
			os.Remove(dir)
			continue
		}
		mounted = true
	}
	if !mounted {
		return fmt.Errorf("no v1 controller could be mounted")
	}
	if layout == "hybrid" {
		return mount("cgroup2", filepath.Join(top, "unified"), "cgroup2", "")
	}
	return nil
}

func mount(source, dir, fstype, data string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	if err := syscall.Mount(source, dir, fstype, 0, data); err != nil {
		return fmt.Errorf("mounting %s (%s): %w", dir, data, err)
	}
	return nil
}
