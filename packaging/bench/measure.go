package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// clockTick is the unit of the times in /proc/PID/stat: 1/100 s on every Linux
// that Go runs on (sysconf(_SC_CLK_TCK)).
const clockTick = 10 * time.Millisecond

// usage is CPU time spent since the processes started.
type usage struct {
	bench  time.Duration // this process
	daemon time.Duration
	redis  time.Duration // all nodes together
}

func (u usage) since(start usage) usage {
	return usage{bench: u.bench - start.bench, daemon: u.daemon - start.daemon, redis: u.redis - start.redis}
}

func (u usage) plus(v usage) usage {
	return usage{bench: u.bench + v.bench, daemon: u.daemon + v.daemon, redis: u.redis + v.redis}
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
	// From the third field of proc(5) on: the name before it may hold anything.
	fields := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:]))
	if len(fields) < 13 {
		return 0, fmt.Errorf("%s: not understood: %q", path, text)
	}
	user, err1 := strconv.ParseInt(fields[11], 10, 64) // utime: the 14th
	system, err2 := strconv.ParseInt(fields[12], 10, 64)
	return time.Duration(user+system) * clockTick, errors.Join(err1, err2)
}

// residentBytes returns how much memory a process has resident (VmRSS).
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

// quantile returns the q-th quantile of sorted, 0 where it is empty.
func quantile(sorted []time.Duration, q float64) time.Duration {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[min(int(q*float64(len(sorted))), len(sorted)-1)]
}

// median returns the middle of values, the mean of the two middle ones where
// their number is even, and 0 of none.
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
