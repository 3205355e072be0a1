package simredis

import (
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/redlockd/redlockd/redlock"
)

type infoSection struct {
	name   string
	fields []infoField
}

// infoField is a line of INFO. Fields with the value "" are not shown.
type infoField struct{ key, value string }

// infoCommand executes INFO [section …].
func infoCommand(c call) redlock.Reply {
	var b strings.Builder
	for _, section := range c.infoSections(c.now) {
		if !c.wantsSection(section.name) {
			continue
		}
		b.WriteString("# " + section.name + "\r\n")
		for _, field := range section.fields {
			if value := c.infoValue(field.key, field.value); value != "" {
				b.WriteString(field.key + ":" + value + "\r\n")
			}
		}
		b.WriteString("\r\n")
	}
	return Text(strings.TrimSuffix(b.String(), "\r\n"))
}

func (c call) wantsSection(name string) bool {
	return len(c.args) == 0 || slices.ContainsFunc(c.args, func(arg string) bool {
		return strings.EqualFold(arg, name) || strings.EqualFold(arg, "all") || strings.EqualFold(arg, "default") || strings.EqualFold(arg, "everything")
	})
}

// infoSections returns the true values. If SetInfo changed the role, the values that depend on the
// role match it.
func (s *State) infoSections(now int64) []infoSection {
	role, link, replID := "master", "", s.ReplID
	if s.Replica {
		role, replID = "slave", s.MasterReplID
	}
	if s.infoValue("role", role) == "slave" {
		link = "up"
	}
	aof := "0"
	if s.Durable {
		aof = "1"
	}
	return []infoSection{
		{"Server", []infoField{
			{"redis_version", "7.0.15"}, {"redis_mode", "standalone"}, {"run_id", s.RunID},
			{"uptime_in_seconds", decimal(s.uptime(now))},
		}},
		{"Memory", []infoField{{"maxmemory", "0"}, {"maxmemory_policy", "noeviction"}}},
		{"Persistence", []infoField{
			{"loading", "0"}, {"aof_enabled", aof}, {"aof_rewrite_in_progress", "0"}, {"aof_rewrite_scheduled", "0"},
			{"aof_last_bgrewrite_status", "ok"}, {"aof_last_write_status", "ok"},
		}},
		{"Stats", []infoField{{"total_commands_processed", decimal(s.commands)}, {"evicted_keys", "0"}}},
		{"Replication", []infoField{
			{"role", role}, {"master_link_status", link}, {"connected_slaves", "0"}, {"master_replid", replID},
		}},
		{"Cluster", []infoField{{"cluster_enabled", "0"}}},
	}
}

func decimal(n int64) string { return strconv.FormatInt(n, 10) }

// infoValue returns what INFO shows for a field with this true value.
func (s *State) infoValue(key, truth string) string {
	if override := s.InfoOverrides[key]; override != "" {
		return override
	}
	return truth
}

func (s *State) HasInfo(key string) bool {
	return slices.ContainsFunc(s.infoSections(0), func(section infoSection) bool {
		return slices.ContainsFunc(section.fields, func(f infoField) bool { return f.key == key })
	})
}

// uptime returns seconds. As in Redis, it subtracts two readings of the wall clock, each truncated
// to a second. So it jumps with the clock, and may be negative.
func (s *State) uptime(now int64) int64 { return now/1_000_000 - s.started/1_000_000 }

// configGet executes CONFIG GET name … for the settings of durability. As in Redis, a name is
// returned as the client wrote it.
func configGet(c call) redlock.Reply {
	settings := map[string]string{"appendfsync": "everysec", "appendonly": "no", "no-appendfsync-on-rewrite": "no"}
	if c.Durable {
		settings["appendfsync"], settings["appendonly"] = "always", "yes"
	}
	reply := List()
	for _, name := range c.args {
		if strings.ContainsAny(name, "*?[") {
			return Failed("ERR redlocktest: CONFIG GET knows no patterns like %s", name)
		}
		if value, ok := settings[strings.ToLower(name)]; ok {
			reply.Array = append(reply.Array, Text(name), Text(value))
		}
	}
	return reply
}

// aclDryRun executes ACL DRYRUN default command … for a command that exists.
func aclDryRun(c call) redlock.Reply {
	switch user, command := c.args[0], c.args[1]; {
	case user != "default":
		return Failed("ERR User '%s' not found", user)
	case command == c.Denied:
		return Text("This user has no permissions to run the '" + strings.ToLower(command) + "' command")
	}
	return Text("OK")
}

// configResetStat resets the statistics. As in Redis, only this command itself counts afterwards.
func configResetStat(c call) redlock.Reply {
	c.commands = 0
	return Text("OK")
}

// Snapshot is the data of a node at one instant. It is never changed.
type Snapshot struct{ keys map[string]entry }

func (s *State) Snapshot() Snapshot { return Snapshot{cloneKeys(s.Keys)} }

// Load replaces all keys with a copy of the snapshot, so the snapshot can be loaded again.
func (s *State) Load(snapshot Snapshot) {
	s.Flush()
	maps.Copy(s.Keys, cloneKeys(snapshot.keys))
}

func cloneKeys(keys map[string]entry) map[string]entry {
	keys = maps.Clone(keys)
	for key, e := range keys {
		e.list, e.Set, e.Hash = slices.Clone(e.list), e.Set.clone(), e.Hash.clone()
		keys[key] = e
	}
	return keys
}

func (s *State) DropExpired(now int64) {
	for key := range s.Keys {
		s.Lookup(key, now)
	}
}

// Demote makes the server a replica. replID is the replication id of its master, or "" if the
// simulation has no such master.
func (s *State) Demote(copied Snapshot, replID string) {
	if replID == "" {
		replID = s.newReplID()
	}
	s.Load(copied)
	s.Replica, s.MasterReplID = true, replID
}

func (s *State) Promote() {
	if s.Replica {
		s.Replica, s.ReplID = false, s.newReplID()
	}
}

// mayWrite fails if the node is a replica.
func (s *State) mayWrite() error {
	if s.Replica {
		return ErrReadOnly
	}
	return nil
}
