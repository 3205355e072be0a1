package systemd

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"os"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Replace replaces this process by a new one of the same program, with the same pid and arguments.
// Its Manager has the descriptors as if the service manager had passed them: see FromEnvironment. The
// caller keeps them open. Replace returns only if it failed; from then on SIGHUP is ignored.
//
// The descriptors keep their numbers, because those from 3 on belong to the Go runtime. A list of
// them is in a file in memory, because a variable has too little room for the names of 10,000
// connections.
func Replace(passed []Passed) error {
	fds := make([]int, len(passed))
	var list bytes.Buffer
	for i, p := range passed {
		if err := p.FD.Control(func(fd uintptr) { fds[i] = int(fd) }); err != nil {
			return fmt.Errorf("passing %s to the next process: %w", p.Name, err)
		}
		fmt.Fprintln(&list, fds[i], p.Name)
	}
	file, err := MemoryFile(passedName, list.Bytes())
	if err != nil {
		return err
	}
	defer file.Close()
	fds = append(fds, int(file.Fd()))

	// No other process may be started meanwhile: it would inherit the descriptors.
	syscall.ForkLock.Lock()
	defer syscall.ForkLock.Unlock()
	defer setCloseOnExec(fds, true)
	if err := setCloseOnExec(fds, false); err != nil {
		return err
	}
	if err := ignoreSIGHUP(); err != nil {
		return err
	}
	environment := append(os.Environ(), passedVariable+"="+strconv.Itoa(int(file.Fd())))
	program := ownProgram()
	defer runtime.KeepAlive(passed)
	return fmt.Errorf("executing %s: %w", program, syscall.Exec(program, os.Args, environment))
}

// ignoreSIGHUP keeps a SIGHUP that arrives before the new process handles signals from ending it: Go
// unblocks SIGHUP at the start, but leaves it ignored until signal.Notify. So the new process must look
// for itself whether there is something to reload.
//
// It does not use signal.Ignore, because then Go ends this process if another thread has just begun to
// handle a SIGHUP.
func ignoreSIGHUP() error {
	const ignore = 1            // SIG_IGN
	action := [4]uint64{ignore} // the kernel's struct sigaction: handler, flags, restorer, mask
	if _, _, errno := unix.RawSyscall6(unix.SYS_RT_SIGACTION, uintptr(unix.SIGHUP), uintptr(unsafe.Pointer(&action)), 0, unsafe.Sizeof(action[3]), 0, 0); errno != 0 {
		return os.NewSyscallError("rt_sigaction", errno)
	}
	return nil
}

// MayReplace returns an error if Replace would fail.
func MayReplace() error {
	if program := ownProgram(); unix.Access(program, unix.X_OK) != nil {
		return fmt.Errorf("%s, the program of this process, may not be executed", program)
	}
	return nil
}

const self = "/proc/self/exe"

// ownProgram returns a path of the program that runs in this process. After an upgrade, its own path
// leads to another version, which may not read the state of this one. Then ownProgram returns
// /proc/self/exe.
func ownProgram() string {
	if !ProgramReplaced() {
		if path, err := os.Executable(); err == nil {
			return path
		}
	}
	return self
}

// ProgramReplaced reports whether another file is now at the path of this process's program, as
// after an upgrade, or none.
func ProgramReplaced() bool {
	path, err := os.Executable()
	if err != nil {
		return false
	}
	running, err := os.Stat(self)
	if err != nil {
		return false
	}
	onDisk, err := os.Stat(path)
	return err != nil || !os.SameFile(running, onDisk)
}

// MemoryFile returns a file that has the content and no name.
func MemoryFile(name string, content []byte) (*os.File, error) {
	fd, err := unix.MemfdCreate(name, unix.MFD_CLOEXEC)
	if err != nil {
		return nil, os.NewSyscallError("memfd_create", err)
	}
	file := os.NewFile(uintptr(fd), name)
	if _, err = file.Write(content); err == nil {
		_, err = file.Seek(0, io.SeekStart)
	}
	if err != nil {
		file.Close()
		return nil, fmt.Errorf("writing %s to memory: %w", name, err)
	}
	return file, nil
}

// setCloseOnExec stops at the first error.
func setCloseOnExec(fds []int, on bool) error {
	flags := 0
	if on {
		flags = unix.FD_CLOEXEC
	}
	for _, fd := range fds {
		if _, err := unix.FcntlInt(uintptr(fd), unix.F_SETFD, flags); err != nil {
			return os.NewSyscallError("fcntl", err)
		}
	}
	return nil
}

// passedByReplace returns the descriptors that Replace has passed to this process, if it was started
// that way.
func passedByReplace() (files []*os.File, err error) {
	text, isSet := os.LookupEnv(passedVariable)
	if !isSet {
		return nil, nil
	}
	os.Unsetenv(passedVariable)
	fd, err := strconv.ParseUint(text, 10, 31)
	if err != nil {
		return nil, fmt.Errorf("%s=%q: it is not for users; unset it", passedVariable, text)
	}
	list := os.NewFile(uintptr(fd), passedName)
	defer list.Close()
	lines := bufio.NewScanner(list)
	for lines.Scan() {
		number, name, _ := strings.Cut(lines.Text(), " ")
		fd, err := strconv.ParseUint(number, 10, 31)
		if err != nil {
			return nil, fmt.Errorf("the list of descriptors of the earlier process: %w", err)
		}
		syscall.CloseOnExec(int(fd))
		files = append(files, os.NewFile(uintptr(fd), name))
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("the list of descriptors of the earlier process: %w", err)
	}
	return files, nil
}
