package admission

import (
	"cmp"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// NodeInfo is the part of a node's INFO that matters for its votes.
type NodeInfo struct {
	Version  string
	RunID    string
	Uptime   int64 // seconds, by the node's wall clock
	Role     string
	ReplID   string
	Replicas int
	Cluster  bool
	Sentinel bool
	Evicts   string // the eviction policy if maxmemory is set; "": it evicts nothing
	Evicted  int64  // keys that it evicted since its start, or since CONFIG RESETSTAT
	File     AppendOnlyFile

	// StrictKeys: it lets scripts use only the keys that their call declares. INFO does not say so.
	StrictKeys bool

	// MayDeny: it uses more memory than maxmemory, could not write to its disk, or requires
	// replicas. A probe finds out whether it therefore refuses locks.
	MayDeny bool
}

// InfoSections are the sections of INFO that ReadInfo needs. ShortSections are those that Update
// needs: they show evictions and replication, which cost votes, and a node needs a third of the
// processor time for them.
var (
	InfoSections  = []string{"server", "memory", "persistence", "stats", "replication", "cluster"}
	ShortSections = []string{"stats", "replication"}
)

// ReadInfo parses the text of INFO.
func ReadInfo(text string) NodeInfo {
	fields := map[string]string{}
	for line := range strings.Lines(text) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), ":")
		fields[key] = value
	}
	number := func(key string) int64 {
		n, _ := strconv.ParseInt(fields[key], 10, 64) // an absent field is 0
		return n
	}
	mode := cmp.Or(fields["redis_mode"], fields["server_mode"]) // Valkey has the second
	info := NodeInfo{
		Version:  fields["redis_version"],
		RunID:    fields["run_id"],
		Uptime:   number("uptime_in_seconds"),
		Role:     fields["role"],
		ReplID:   fields["master_replid"],
		Replicas: int(number("connected_slaves")),
		Cluster:  mode == "cluster" || fields["cluster_enabled"] == "1",
		Sentinel: mode == "sentinel",
		Evicted:  number("evicted_keys"),
		File: AppendOnlyFile{
			enabled:   fields["aof_enabled"] == "1",
			failed:    fields["aof_last_write_status"] == "err" || fields["aof_last_bgrewrite_status"] == "err",
			rewriting: fields["aof_rewrite_in_progress"] == "1" || fields["aof_rewrite_scheduled"] == "1",
		},
	}
	_, wantsReplicas := fields["min_slaves_good_slaves"]
	info.MayDeny = wantsReplicas || info.File.failed || fields["rdb_last_bgsave_status"] == "err" ||
		number("maxmemory") > 0 && number("used_memory") > number("maxmemory")
	if policy := fields["maxmemory_policy"]; number("maxmemory") > 0 && policy != "noeviction" {
		info.Evicts = policy
	}
	return info
}

// Update returns the info after a look with ShortSections, elapsed seconds of the node's wall clock
// later. The rest is as it was.
func (i NodeInfo) Update(text string, elapsed int64) NodeInfo {
	now := ReadInfo(text)
	i.Uptime += elapsed
	i.Role, i.ReplID, i.Replicas, i.Evicted = now.Role, now.ReplID, now.Replicas, now.Evicted
	return i
}

// EmbeddedInfo returns the info of an embedded node, which has no INFO.
func EmbeddedInfo() NodeInfo {
	return NodeInfo{Version: "7", RunID: "embedded", Role: "master", File: AppendOnlyFile{enabled: true}}
}

// Refusal returns why such a node gets no vote at all, with the fix; nil: it may get one.
func (i *NodeInfo) Refusal() error {
	major, _, _ := strings.Cut(i.Version, ".")
	n, err := strconv.Atoi(major)
	switch {
	case err != nil || n < 7:
		return fmt.Errorf("its INFO says redis_version %q: Redis 7 or later is needed (PEXPIRE … GT)", i.Version)
	case i.RunID == "":
		return errors.New("its INFO has no run_id, so a restart could not be noticed: connect to Redis itself, not to a proxy")
	case i.Sentinel:
		return ErrSentinel
	case i.Role != "master":
		return fmt.Errorf("it is a %s: locks need independent masters; REPLICAOF NO ONE makes it one (it is quarantined then)", roleName(i.Role))
	case i.Replicas > 0:
		return fmt.Errorf("%d replicas are attached: a promoted replica has lost votes; detach them (REPLICAOF NO ONE there)", i.Replicas)
	case i.Cluster:
		return errors.New("it runs in cluster mode, where slots move between nodes: set cluster-enabled no")
	case i.StrictKeys:
		return errors.New("it lets scripts use only the keys that they declare, and redlockd's scripts find keys as they run: if it is Dragonfly, start it with --default_lua_flags=allow-undeclared-keys")
	case i.Evicts != "":
		return fmt.Errorf("maxmemory is set and its policy %s evicts locks: CONFIG SET maxmemory-policy noeviction (on a managed server: in its parameter group)", i.Evicts)
	}
	return nil
}

// ErrSentinel means that the address belongs to a Sentinel.
var ErrSentinel = errors.New("it is a Sentinel, which stores no locks: use the address of a separate Redis that no Sentinel watches")

// roleName returns the role in the words of Redis's documentation: INFO says slave.
func roleName(role string) string {
	switch role {
	case "":
		return "node without a role"
	case "slave":
		return "replica"
	}
	return role
}

// Snapshot is a node's state, read in one round trip.
type Snapshot struct {
	Info         NodeInfo
	Epoch        string        // in the node's hash; "" if there is none
	Incarnations string        // what the node reports about the other nodes' epochs
	Clock        ClockSample   // its TIME
	Sent         time.Duration // BootTime before the question was sent
	At           time.Duration // BootTime after the answer was received
	SentTurn     uint64        // turns before the question and after the answer, see Fleet.NextTurn
	Turn         uint64
}
