package main

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// machine watches what else runs here: figures from a busy machine are worth less.
type machine struct {
	start      time.Time
	busy, ours time.Duration // until start
}

// watchMachine begins to watch.
func watchMachine() (m machine, err error) {
	m.start = time.Now()
	m.busy, m.ours, err = cpuTimes()
	return m, err
}

// others returns how many CPUs other processes have kept busy meanwhile. It must
// be called when all children have ended and were waited for.
func (m machine) others() (float64, error) {
	busy, ours, err := cpuTimes()
	if err != nil {
		return 0, err
	}
	theirs := busy - m.busy - (ours - m.ours)
	return max(0, theirs.Seconds()/time.Since(m.start).Seconds()), nil
}

// cpuTimes returns the time for which the CPUs of this machine have been busy,
// and the part of it that is ours and that of children that have ended.
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

// busyTime adds up user, nice, system, irq and softirq of the first line of
// /proc/stat; see proc(5).
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
