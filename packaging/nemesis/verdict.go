package main

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// A verdict checks the history during the run, and reports violations at once.
type verdict struct {
	world    *world
	schedule *schedule
	out      io.Writer

	locks      int // number of checked locks
	violations []violation
}

const (
	checkPause  = time.Second
	reportPause = time.Minute
)

// watch checks locks that are no longer used, until stop is closed. With -until-violation it checks
// all locks, and ends the run after a violation.
func (v *verdict) watch(stop <-chan struct{}, end func()) {
	check, report := time.NewTicker(checkPause), time.NewTicker(reportPause)
	defer check.Stop()
	defer report.Stop()
	started := time.Now()
	for {
		select {
		case <-stop:
			return
		case <-report.C:
			v.world.mu.Lock()
			grants, held := v.world.history.totalGrants(), len(v.world.history.holds)
			v.world.mu.Unlock()
			fmt.Fprintf(v.out, "%v: %d grants, %d faults, %d violations in %d locks; %d grants to be checked\n",
				time.Since(started).Round(time.Second), grants, v.schedule.effective(), len(v.violations), v.locks, held)
		case <-check.C:
			if v.hasEnough() {
				end()
			}
			v.world.mu.Lock()
			idle := v.world.history.takeIdle(now())
			var found []violation
			if v.world.options.until {
				found = v.world.history.checkLive()
			}
			v.world.mu.Unlock()
			if err := v.judge(idle); err != nil {
				fmt.Fprintln(v.out, "nemesis:", err) // finish will fail too
			}
			if len(found) > 0 || v.world.options.until && len(v.violations) > 0 {
				end()
			}
		}
	}
}

// hasEnough reports whether there were as many grants and faults as the flags require.
func (v *verdict) hasEnough() bool {
	o := &v.world.options
	if o.grants == 0 {
		return false
	}
	v.world.mu.Lock()
	grants := v.world.history.totalGrants()
	v.world.mu.Unlock()
	return grants >= o.grants && v.schedule.effective() >= o.atLeast
}

// finish checks the remaining locks at the end of the run.
func (v *verdict) finish() error { return v.judge(v.world.history.takeIdle(never)) }

// judge checks locks.
func (v *verdict) judge(locks []completeHistory) error {
	v.locks += len(locks)
	return v.add(checkAll(locks))
}

// add reports violations. It writes the histories of their locks to files beside the logs.
func (v *verdict) add(found []violation) error {
	v.violations = append(v.violations, found...)
	for _, one := range found {
		fmt.Fprintf(v.out, "VIOLATION: %s\n", one)
		if err := v.keep(one); err != nil {
			return err
		}
	}
	return nil
}

// keep writes the history of a lock with a violation, and the run's options. These files stay, with
// the logs of the run.
func (v *verdict) keep(found violation) error {
	v.world.options.keep = true
	var text bytes.Buffer
	for _, one := range found.holds {
		text.Write(append(one.json(), '\n'))
	}
	path := filepath.Join(v.world.dir, "violation-"+strings.ReplaceAll(found.name, "/", "_")+".jsonl")
	if err := os.WriteFile(path, text.Bytes(), 0o600); err != nil {
		return err
	}
	run := fmt.Sprintf("%v\n%+v\n", os.Args, v.world.options)
	for _, one := range v.violations {
		run += one.String() + "\n"
	}
	return os.WriteFile(filepath.Join(v.world.dir, "run.txt"), []byte(run), 0o600)
}
