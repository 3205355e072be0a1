package main

import (
	"testing"
	"time"
)

func TestAlarm(t *testing.T) {
	a, err := newAlarm()
	if err != nil {
		t.Fatal(err)
	}
	defer a.close()
	for _, in := range []time.Duration{-time.Hour, 0, 20 * time.Millisecond} {
		at := boottime() + in
		a.set(boottime() + time.Hour) // the last one counts
		a.set(at)
		select {
		case <-a.C:
		case <-time.After(patience):
			t.Fatalf("an alarm in %v does not ring", in)
		}
		if early := at - boottime(); early > 0 {
			t.Errorf("an alarm in %v rang %v too early", in, early)
		}
	}
	a.set(-1) // before this host was booted
	<-a.C
}
