package cgroup

import (
	"fmt"
	"io/fs"
	"syscall"
)

func hostSource(root string) (source, error) { return host{root}, nil }

// host reads the machine's own files with plain system calls: the os package
// would register every cgroup file with the network poller (kernfs files
// accept that), which a library that polls once a second must not do to a
// service.
type host struct{ root string }

// open opens a regular file below the root. It fails for any other file instead of waiting
// for it.
func (h host) open(name string) (handle, error) {
	name = h.root + name
	// O_NONBLOCK: a named pipe in place of a file must not hang us.
	var fd int
	var err error
	for {
		fd, err = syscall.Open(name, syscall.O_RDONLY|syscall.O_CLOEXEC|syscall.O_NONBLOCK, 0)
		if err != syscall.EINTR {
			break
		}
	}
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: name, Err: err}
	}
	var st syscall.Stat_t
	if err := syscall.Fstat(fd, &st); err != nil {
		syscall.Close(fd)
		return nil, &fs.PathError{Op: "stat", Path: name, Err: err}
	}
	if st.Mode&syscall.S_IFMT != syscall.S_IFREG {
		syscall.Close(fd)
		return nil, &fs.PathError{Op: "open", Path: name, Err: fmt.Errorf("not a regular file (mode %#o)", st.Mode)}
	}
	return &hostHandle{fd: fd, name: name}, nil
}

func (h host) isDir(name string) bool {
	var st syscall.Stat_t
	return syscall.Stat(h.root+name, &st) == nil && st.Mode&syscall.S_IFMT == syscall.S_IFDIR
}

type hostHandle struct {
	fd   int
	name string
}

// readAt fills buf from offset off; fewer bytes, without an error, are the end.
func (h *hostHandle) readAt(buf []byte, off int64) (int, error) {
	if h.fd < 0 {
		return 0, &fs.PathError{Op: "read", Path: h.name, Err: fs.ErrClosed}
	}
	n := 0
	for n < len(buf) {
		m, err := syscall.Pread(h.fd, buf[n:], off+int64(n))
		if err == syscall.EINTR {
			continue
		}
		if err != nil {
			return n, &fs.PathError{Op: "read", Path: h.name, Err: err}
		}
		if m <= 0 {
			break
		}
		n += m
	}
	return n, nil
}

// sample reads the file from its beginning into buf with one system call, repeated only after a signal, and returns the number of bytes; a longer
// file fills buf.
func (h *hostHandle) sample(buf []byte) (int, error) {
	if h.fd < 0 {
		return 0, fs.ErrClosed
	}
	for {
		n, err := syscall.Pread(h.fd, buf, 0)
		if err == nil {
			return n, nil
		}
		if err != syscall.EINTR {
			return 0, err
		}
	}
}

// close closes the file; further calls do nothing.
func (h *hostHandle) close() error {
	if h.fd < 0 {
		return nil
	}
	fd := h.fd
	h.fd = -1
	return syscall.Close(fd)
}
