package redlocktest

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

func (s *Sim) infoLine(key string) string { return infoLine(s.Do("INFO").Str, key) }

// TestSimInfoMatchesRedis: a redis-server and the simulated node report the same about themselves.
func TestSimInfoMatchesRedis(t *testing.T) {
	for _, durable := range []bool{false, true} {
		t.Run(fmt.Sprintf("durable=%v", durable), func(t *testing.T) {
			var options []Option
			if durable {
				options = append(options, Args("--appendonly", "yes", "--appendfsync", "always"))
			}
			server := StartRedis(t, 1, options...).Servers[0]
			sim := NewSim("a")
			defer sim.Close()
			sim.SetDurable(durable)
			real, err := server.must("INFO")
			want(t, "error", err, nil)
			compareInfo(t, sim.Do("INFO").Str, real.Str)
			for _, setting := range []string{"appendfsync", "appendonly"} {
				real, err := server.must("CONFIG", "GET", setting)
				want(t, "error", err, nil)
				want(t, setting, show(sim.Do("CONFIG", "GET", setting)), show(real))
			}
		})
	}
}

// compareInfo checks that real contains all lines of simulated, except values that differ in each
// process.
func compareInfo(t *testing.T, simulated, real string) {
	t.Helper()
	own := []string{"run_id", "master_replid", "uptime_in_seconds", "total_commands_processed"}
	lines := strings.Split(real, "\r\n")
	for line := range strings.SplitSeq(simulated, "\r\n") {
		key, _, _ := strings.Cut(line, ":")
		if slices.Contains(own, key) {
			want(t, "digits of "+key, len(infoLine(simulated, key)) == 40, len(infoLine(real, key)) == 40)
		} else if !slices.Contains(lines, line) {
			t.Errorf("INFO: %q, want %q", line, key+":"+infoLine(real, key))
		}
	}
}

func TestSimSetInfo(t *testing.T) {
	simTest(t, func(t *testing.T, sim *Sim) {
		for _, key := range []string{"maxmemory", "redis_mode", "cluster_enabled", "connected_slaves", "run_id", "total_commands_processed"} {
			truth := sim.infoLine(key)
			sim.SetInfo(key, "other")
			want(t, key, sim.infoLine(key), "other")
			sim.Restart()
			want(t, key+" after a restart", sim.infoLine(key), "other")
			sim.SetInfo(key, "")
			if key == "run_id" {
				truth = sim.RunID()
			}
			if got := sim.infoLine(key); key != "total_commands_processed" && got != truth || got == "other" {
				t.Errorf("%s: got %s, want the true value again, %s", key, got, truth)
			}
		}
		sim.SetInfo("role", "slave")
		want(t, "link of a replica", sim.infoLine("master_link_status"), "up")
		sim.SetInfo("master_link_status", "down")
		want(t, "link", sim.infoLine("master_link_status"), "down")
		want(t, "it executes writes", sim.Do("SET", "k", "v").Str, "OK")
		defer func() { want(t, "panic for an unknown field", recover() != nil, true) }()
		sim.SetInfo("run-id", "x")
	})
}

// TestSimUptimeFollowsTheClock: as in Redis, the uptime follows the wall clock, and CONFIG
// RESETSTAT does not reset it.
func TestSimUptimeFollowsTheClock(t *testing.T) {
	simTest(t, func(t *testing.T, sim *Sim) {
		time.Sleep(1500 * ms)
		want(t, "uptime", sim.infoLine("uptime_in_seconds"), "1")
		sim.StepClock(time.Minute)
		sim.Do("CONFIG", "RESETSTAT")
		want(t, "uptime after a step", sim.infoLine("uptime_in_seconds"), "61")
		sim.StepClock(-time.Hour)
		want(t, "uptime after a step back", sim.infoLine("uptime_in_seconds"), "-3539")
		sim.Restart()
		want(t, "uptime after a restart", sim.infoLine("uptime_in_seconds"), "0")
	})
}

// TestSimUptimeCountsWholeSeconds: Redis truncates both instants to seconds before it subtracts
// them.
func TestSimUptimeCountsWholeSeconds(t *testing.T) {
	simTest(t, func(t *testing.T, sim *Sim) {
		time.Sleep(999 * ms)
		sim.Restart()
		time.Sleep(ms)
		want(t, "uptime", sim.infoLine("uptime_in_seconds"), "1")
	})
}

func TestSimResetStat(t *testing.T) {
	simTest(t, func(t *testing.T, sim *Sim) {
		sim.Do("PING")
		sim.Do("NOSUCH")
		sim.Do("GET")
		want(t, "commands", sim.infoLine("total_commands_processed"), "1")
		sim.Do("CONFIG", "RESETSTAT")
		want(t, "commands, including the reset", sim.infoLine("total_commands_processed"), "1")
	})
}
