package redlock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/redlockd/redlockd/redlock/internal/redis"
)

// nodeInfo is what a node's INFO says, as far as it bears on its votes.
type nodeInfo struct {
	version  string
	runID    string
	uptime   int64 // seconds, by the node's wall clock
	role     string
	replID   string
	replicas int
	cluster  bool
	sentinel bool
	evicts   string // the eviction policy, where maxmemory is set; "" where nothing is evicted
	evicted  int64  // keys that it evicted since it was started, or since CONFIG RESETSTAT
	file     appendOnly

	// maybeDenies: it has more in its memory than it may, could not write to its disk, or
	// wants replicas. Whether it refuses locks for that, a probe finds out.
	maybeDenies bool
}

// infoSections are the sections of INFO that readInfo wants.
var infoSections = []string{"server", "memory", "persistence", "stats", "replication", "cluster"}

func readInfo(text string) nodeInfo {
	fields := map[string]string{}
	for line := range strings.Lines(text) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), ":")
		fields[key] = value
	}
	number := func(key string) int64 {
		n, _ := strconv.ParseInt(fields[key], 10, 64) // absent is 0
		return n
	}
	info := nodeInfo{
		version:  fields["redis_version"],
		runID:    fields["run_id"],
		uptime:   number("uptime_in_seconds"),
		role:     fields["role"],
		replID:   fields["master_replid"],
		replicas: int(number("connected_slaves")),
		cluster:  fields["redis_mode"] == "cluster" || fields["cluster_enabled"] == "1",
		sentinel: fields["redis_mode"] == "sentinel",
		evicted:  number("evicted_keys"),
		file: appendOnly{
			enabled:   fields["aof_enabled"] == "1",
			failed:    fields["aof_last_write_status"] == "err" || fields["aof_last_bgrewrite_status"] == "err",
			rewriting: fields["aof_rewrite_in_progress"] == "1" || fields["aof_rewrite_scheduled"] == "1",
		},
	}
	_, wantsReplicas := fields["min_slaves_good_slaves"]
	info.maybeDenies = wantsReplicas || info.file.failed || fields["rdb_last_bgsave_status"] == "err" ||
		number("maxmemory") > 0 && number("used_memory") > number("maxmemory")
	if policy := fields["maxmemory_policy"]; number("maxmemory") > 0 && policy != "noeviction" {
		info.evicts = policy
	}
	return info
}

// embeddedInfo stands for the INFO that embedded nodes do not have.
func embeddedInfo() nodeInfo {
	return nodeInfo{version: "7", runID: "embedded", role: "master", file: appendOnly{enabled: true}}
}

// refusal says why a node like this gets no vote at all, with the fix; nil
// where it may have one.
func (i *nodeInfo) refusal() error {
	major, _, _ := strings.Cut(i.version, ".")
	n, err := strconv.Atoi(major)
	switch {
	case err != nil || n < 7:
		return fmt.Errorf("its INFO says redis_version %q: Redis 7 or later is needed (PEXPIRE … GT)", i.version)
	case i.runID == "":
		return errors.New("its INFO names no run_id, so a restart could not be told: connect to Redis itself, not to a proxy")
	case i.sentinel:
		return errSentinel
	case i.role != "master":
		return fmt.Errorf("it is a %s: locks need independent masters; REPLICAOF NO ONE makes it one (it is quarantined then)", orUnknown(i.role))
	case i.replicas > 0:
		return fmt.Errorf("%d replicas are attached: one that is promoted has lost votes; detach them (REPLICAOF NO ONE there)", i.replicas)
	case i.cluster:
		return errors.New("it runs in cluster mode, where slots move between nodes: set cluster-enabled no")
	case i.evicts != "":
		return fmt.Errorf("maxmemory is set and its policy %s evicts locks: CONFIG SET maxmemory-policy noeviction", i.evicts)
	}
	return nil
}

var errSentinel = errors.New("it is a Sentinel, which keeps no locks: the address has to be that of a Redis of its own, which no Sentinel looks after")

func orUnknown(role string) string {
	if role == "" {
		return "node without a role"
	}
	return role
}

// sighting is what one round trip told of a node.
type sighting struct {
	info  nodeInfo
	epoch string        // what is in its hash; "" for nothing
	words string        // the same, of the other nodes' incarnations
	clock clockSample   // its TIME
	sent  time.Duration // BootTime before the question
	at    time.Duration // and when the answer was there
	asked uint64        // turns before and after it, in the order of all that is asked
	heard uint64
}

// appendLook asks for a sighting. TIME comes first: nothing that is slow stands
// between it and the calls before it.
func (l *lane) appendLook() {
	l.session.look, l.session.rights, l.rights = false, false, l.session.rights && !l.node.Embedded
	l.asked = l.fleet.jumps.next()
	l.appendCommand("TIME")
	l.appendCommand("HGET", nodeKey, "epoch")
	l.appendCommand("HGET", nodeKey, "words")
	if l.node.Embedded {
		return
	}
	info := l.appendCommand("INFO")
	*info = append(*info, infoSections...)
	if l.node.Durable {
		config := l.appendCommand("CONFIG", "GET")
		*config = append(*config, fileSettings...)
		for _, command := range l.filed() {
			right := l.appendCommand("ACL", "DRYRUN", "default")
			*right = append(*right, command...)
		}
	}
	if l.rights {
		l.appendRights()
	}
}

// filed is on a key that is none, and that the rights for locks are for.
func (l *lane) filed() []Command { return filed(l.fleet.options.Prefix + beside + "probe") }

// readLook reads the answers to appendLook. An error: the node refused one, or it was
// no answer.
func (l *lane) readLook(replies []Reply) (*sighting, error) {
	if l.rights {
		last := len(replies) - 1
		if err := l.noteRights(replies[last:]); err != nil {
			return nil, err
		}
		replies = replies[:last]
	}
	passOver(replies)
	for i := range min(len(replies), len(lookWords)) {
		if err := replies[i].Err; err != nil {
			return nil, cmp.Or(sentinelSays(replies), fmt.Errorf("%s, which tells whether it may vote: %w%s", lookWords[i], err, helpWith(err)))
		}
	}
	if err := checkLook(replies); err != nil {
		return nil, l.noteOdd(err)
	}
	s := &sighting{info: embeddedInfo(), epoch: replies[1].Str, words: replies[2].Str, sent: l.sent, at: l.heard, asked: l.asked, heard: l.fleet.jumps.next()}
	s.clock = l.readTime(&replies[0])
	s.clock.turn = s.heard
	l.fleet.horizon.note(l.index, s.clock)
	if len(replies) > 3 {
		s.info = readInfo(replies[3].Str)
	}
	l.session.probe = l.session.probe || s.info.maybeDenies
	if len(replies) > 4 {
		s.info.file.readSettings(replies[4].Array)
		s.info.file.readRights(l.filed(), replies[5:])
	}
	return s, nil
}

func helpWith(err error) string {
	if redis.IsKind(err, "WRONGTYPE") {
		return " (somebody else wrote to redlockd:node: DEL it there, and the node is in quarantine for max_ttl)"
	}
	return ""
}

// sentinelSays is what is wrong with a Sentinel, which does not know TIME either; nil: it is none.
func sentinelSays(replies []Reply) error {
	if len(replies) > 3 && replies[3].IsText() && readInfo(replies[3].Str).sentinel {
		return errSentinel
	}
	return nil
}

// passOver takes it for no epoch where a node refuses to show that, and INFO says of
// it what has it refused in any case: a node of a cluster (CLUSTERDOWN, MOVED), or a replica
// without its master (MASTERDOWN). That is what has to be mended.
func passOver(replies []Reply) {
	if len(replies) <= 3 || !replies[3].IsText() {
		return
	}
	info := readInfo(replies[3].Str)
	for i := 1; i <= 2; i++ {
		if redis.IsServerError(replies[i].Err) && info.refusal() != nil {
			replies[i] = Reply{Nil: true}
		}
	}
}

var lookWords = [...]string{"TIME", "HGET " + nodeKey + " epoch", "HGET " + nodeKey + " words", "INFO", "CONFIG GET " + fileSettings[0]}

// look asks for a sighting alone.
func (l *lane) look(ctx context.Context, conn Conn) (*sighting, error) {
	l.commands = l.commands[:0]
	l.appendLook()
	if err := l.roundTrip(ctx, conn); err != nil {
		return nil, err
	}
	return l.readLook(l.replies)
}
