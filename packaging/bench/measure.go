package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// clockTick is the unit of the times in /proc/PID/stat: 1/100 s on every Linux
// that Go runs on (sysconf(_SC_CLK_TCK)).
const clockTick = 10 * time.Millisecond

// usage is the CPU time that processes have used since their start.
type usage struct {
	bench  time.Duration // this process
	daemon time.Duration
	redis  time.Duration // all nodes, or all servers of another kind
	delays time.Duration // the network, if any
}

func (u usage) since(start usage) usage {
	return usage{bench: u.bench - start.bench, daemon: u.daemon - start.daemon, redis: u.redis - start.redis, delays: u.delays - start.delays}
}

func (u usage) plus(v usage) usage {
	return usage{bench: u.bench + v.bench, daemon: u.daemon + v.daemon, redis: u.redis + v.redis, delays: u.delays + v.delays}
}

// ownCPU returns the CPU time of this process.
func ownCPU() (time.Duration, error) {
	var r syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &r); err != nil {
		return 0, fmt.Errorf("getrusage: %w", err)
	}
	return time.Duration(r.Utime.Nano() + r.Stime.Nano()), nil
}

// processCPU returns the CPU time of another process, user and system.
func processCPU(pid int) (time.Duration, error) {
	path := fmt.Sprintf("/proc/%d/stat", pid)
	text, err := os.ReadFile(path)
	if err != nil {
		return 0, err
	}
	// From the third field of proc(5) on: the name before it may contain any character.
	fields := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:]))
	if len(fields) < 13 {
		return 0, fmt.Errorf("%s: not understood: %q", path, text)
	}
	user, err1 := strconv.ParseInt(fields[11], 10, 64) // utime: the 14th
	system, err2 := strconv.ParseInt(fields[12], 10, 64)
	return time.Duration(user+system) * clockTick, errors.Join(err1, err2)
}

// threadsCPU returns the CPU time of all threads of a process, to the nanosecond.
func threadsCPU(pid int) (time.Duration, error) {
	paths, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", pid))
	if err != nil {
		return 0, err
	}
	sum := time.Duration(0)
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			continue // the thread has ended
		}
		ns, err := strconv.ParseInt(strings.Fields(string(text) + " 0")[0], 10, 64)
		if err != nil {
			return 0, fmt.Errorf("%s: not understood: %q", path, text)
		}
		sum += time.Duration(ns)
	}
	return sum, nil
}

// residentBytes returns the resident memory of a process (VmRSS).
func residentBytes(pid int) (int64, error) {
	text, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/status")
	if err != nil {
		return 0, err
	}
	for lines := bufio.NewScanner(bytes.NewReader(text)); lines.Scan(); {
		if rest, ok := strings.CutPrefix(lines.Text(), "VmRSS:"); ok {
			kb, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(rest), " kB"), 10, 64)
			return kb << 10, err
		}
	}
	return 0, fmt.Errorf("/proc/%d/status has no VmRSS: has it ended?", pid)
}

// quantile returns the q-th quantile of sorted values, or 0 if there are none.
func quantile(sorted []time.Duration, q float64) time.Duration {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[min(int(q*float64(len(sorted))), len(sorted)-1)]
}

// median returns the median of values, or 0 if there are none.
func median(values []float64) float64 {
	if len(values) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(values))
	mid := len(sorted) / 2
	if len(sorted)%2 == 1 {
		return sorted[mid]
	}
	return (sorted[mid-1] + sorted[mid]) / 2
}

// machine measures other load: figures from a busy machine are worth less.
type machine struct {
	start      time.Time
	busy, ours time.Duration // up to the start
}

// watchMachine starts the measurement.
func watchMachine() (m machine, err error) {
	m.start = time.Now()
	m.busy, m.ours, err = cpuTimes()
	return m, err
}

// others returns how many CPUs other processes have kept busy meanwhile. Call it when all children
// have ended and are reaped.
func (m machine) others() (float64, error) {
	busy, ours, err := cpuTimes()
	if err != nil {
		return 0, err
	}
	theirs := busy - m.busy - (ours - m.ours)
	return max(0, theirs.Seconds()/time.Since(m.start).Seconds()), nil
}

// cpuTimes returns the time for which the CPUs of this machine were busy, and the part of this
// process and its ended children.
func cpuTimes() (busy, ours time.Duration, err error) {
	own, err1 := ownCPU()
	var children syscall.Rusage
	err2 := syscall.Getrusage(syscall.RUSAGE_CHILDREN, &children)
	text, err3 := os.ReadFile("/proc/stat")
	if err := errors.Join(err1, err2, err3); err != nil {
		return 0, 0, err
	}
	busy, err = busyTime(string(text))
	return busy, own + time.Duration(children.Utime.Nano()+children.Stime.Nano()), err
}

// busyTime adds up user, nice, system, irq and softirq in the first line of /proc/stat; see
// proc(5).
func busyTime(stat string) (time.Duration, error) {
	line, _, _ := strings.Cut(stat, "\n")
	fields := strings.Fields(line)
	if len(fields) < 8 || fields[0] != "cpu" {
		return 0, fmt.Errorf("/proc/stat: not understood: %q", line)
	}
	var sum time.Duration
	for _, i := range []int{1, 2, 3, 6, 7} {
		ticks, err := strconv.ParseInt(fields[i], 10, 64)
		if err != nil {
			return 0, fmt.Errorf("/proc/stat: %w", err)
		}
		sum += time.Duration(ticks) * clockTick
	}
	return sum, nil
}

// alarm is a precise sleep that uses no CPU. A Go timer is not precise: in an idle process one of 1
// ms may fire after 2 ms, because epoll counts in milliseconds. A goroutine that spins takes a CPU
// from the measurement. With a timerfd the kernel ends the wait in time.
type alarm struct {
	fd   int // the file's descriptor, because File.Fd would make its reads block a thread
	file *os.File
}

// newAlarm uses a file descriptor until close.
func newAlarm() (*alarm, error) {
	fd, err := unix.TimerfdCreate(unix.CLOCK_MONOTONIC, unix.TFD_NONBLOCK|unix.TFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("timerfd_create: %w", err)
	}
	return &alarm{fd: fd, file: os.NewFile(uintptr(fd), "timerfd")}, nil
}

// sleep waits for d. One goroutine may call it at a time. A nil alarm can only sleep for 0.
func (a *alarm) sleep(d time.Duration) {
	if d <= 0 {
		return
	}
	spec := unix.ItimerSpec{Value: unix.NsecToTimespec(int64(d))}
	err := unix.TimerfdSettime(a.fd, 0, &spec, nil)
	if err == nil {
		var rung [8]byte
		_, err = a.file.Read(rung[:])
	}
	if err != nil { // impossible for an open timerfd; figures would be wrong
		panic(fmt.Sprintf("timerfd: %v", err))
	}
}

func (a *alarm) close() { _ = a.file.Close() } // nothing is left to write
