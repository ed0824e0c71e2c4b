//go:build linux || darwin

package raw

import "syscall"

// freeBytes returns the bytes that a user without privileges can still write to the disk of dir.
func freeBytes(dir string) (int64, error) {
	var s syscall.Statfs_t
	if err := syscall.Statfs(dir, &s); err != nil {
		return 0, err
	}
	return int64(s.Bavail) * int64(s.Bsize), nil
}
