package session

import (
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/redlockd/redlockd/ipc"
	"github.com/redlockd/redlockd/ipc/server"
	"github.com/redlockd/redlockd/redlock"
)

// who asks the nodes.
func (s *session) who(call *server.Call) server.Work {
	return workFunc(func() {
		holdings, waiters, err := s.host.Nodes.WhoWaits(call.Context(), call.Names[0])
		switch {
		case err != nil:
			s.refuse(call, err)
		case len(holdings) <= manyHolders:
			s.answerWho(call, holdings, waiters)
		default: // the answer can be as long as a LIST
			s.oneAtATime(call, func() { s.answerWho(call, holdings, waiters) })
		}
	})
}

func (s *session) answerWho(call *server.Call, holdings []redlock.Holding, waiters []redlock.Waiting) {
	d, name := s.host, call.Names[0]
	nodes := int64(len(d.Cfg.Quorum.Nodes))
	for _, h := range holdings {
		here := d.onNodes(&h) // a client that may send WHO also sees it in LIST
		line := new(ipc.Response).Line(call.Tag).Str("lock", name).Str("mode", modeOf(h.Shared))
		holderFields(waitingField(slotField(slotsField(line, h.Slots), h.Slot), h.Waiting), d.currentHolder(&h, here))
		noteField(d.goneField(d.keptField(ttlField(line, h.TTL).Int("held", int64(h.Held)).Int("nodes", nodes), here), here), here)
		call.Line(line.Say(d.whoText(&h, here)))
	}
	r := call.OK().Int("n", int64(len(holdings)))
	var here time.Duration
	d.queueMu.Lock()
	first := d.queue.FirstWaiting(name)
	d.queueMu.Unlock()
	if first != nil {
		here = d.waitOf(first)
	}
	hosts := d.waitingHosts(waiters, here)
	waitingFields(r, hosts)
	if i := slices.IndexFunc(hosts, func(h waitingHost) bool { return h.name == d.hostname }); i >= 0 {
		r.Int("position", int64(i+1))
	}
	call.Reply(r)
}

// waitingHost is a host with clients that wait for a lock.
type waitingHost struct {
	name   string
	waited time.Duration // its first client
}

// waitingHosts returns the hosts that wait for a lock, in the order in which they get it. here is
// for how long a client of this host has waited: it may not be in the nodes' queues.
func (d *Host) waitingHosts(waiters []redlock.Waiting, here time.Duration) (hosts []waitingHost) {
	add := func(name string, waited time.Duration) {
		if !slices.ContainsFunc(hosts, func(h waitingHost) bool { return h.name == name }) {
			hosts = append(hosts, waitingHost{name, waited})
		}
	}
	for i := range waiters {
		add(waiters[i].Holder.Host, waiters[i].For)
	}
	if here > 0 {
		add(d.hostname, here)
	}
	return hosts
}

// waitingFields adds the hosts that wait, and for how many milliseconds each has waited.
func waitingFields(r *ipc.Response, hosts []waitingHost) {
	if hosts == nil {
		return
	}
	names, waited := make([]string, len(hosts)), make([]string, len(hosts))
	for i, h := range hosts {
		names[i], waited[i] = h.name, strconv.FormatInt(h.waited.Milliseconds(), 10)
	}
	r.Strs("waiting_hosts", names...).Strs("waiting_ms", waited...)
}

// currentHolder returns the present holder of a lock. After a pass, the nodes still show the
// previous holder.
func (d *Host) currentHolder(h *redlock.Holding, here *heldLease) redlock.Holder {
	if here == nil || !here.lease.Passed() {
		return h.Holder
	}
	return d.holderOf(&here.Requester, here.lease.Since())
}

func (d *Host) whoText(h *redlock.Holding, here *heldLease) string {
	switch {
	case h.Waiting:
		return "nobody holds it; the nodes keep it for this client, which waits and is next"
	case !h.Holder.Known():
		return "held by another Redlock client, which does not identify itself"
	case here != nil && d.isKept(here):
		return "its holder has ended; it stays taken for kept= (min=)"
	case here != nil && here.lease.TimeToRelease() > 0:
		return fmt.Sprintf("it was lost (%s), and stays taken for at most ttl=: its client may still be working", here.lease.Reason())
	case here != nil && d.isHolderGone(here):
		return "its process ended while redlockd was down; it stays taken for at most ttl=, because another process may resume it"
	}
	return ""
}

// keptField adds how long a lease of this daemon stays taken at least, whatever its holder does.
func (d *Host) keptField(line *ipc.Response, here *heldLease) *ipc.Response {
	if here == nil || here.lease.Err() != nil {
		return line
	}
	if left := d.minLeft(here); left > 0 {
		line.Ms("kept", left)
	}
	return line
}

// goneField says that the process of a lease of this daemon has ended, if that is known.
func (d *Host) goneField(line *ipc.Response, here *heldLease) *ipc.Response {
	if here != nil && d.isHolderGone(here) {
		line.Str("gone", "yes")
	}
	return line
}

// noteField adds note= of a lease of this daemon, if it has one.
func noteField(line *ipc.Response, here *heldLease) {
	if here != nil && here.Note != "" {
		line.Str("note", here.Note)
	}
}

// manyHolders is the number of holders above which an answer to WHO counts as a long one.
const manyHolders = 100
