package client

import (
	"context"
	"reflect"
	"testing"
	"testing/synctest"
	"time"
)

func TestWho(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, d := dialScripted(t)
		asked := async(func() ([]Holder, error) { return c.Who(t.Context(), "a,b") })
		d.expect("@0 WHO a%2Cb")
		d.say("@0 - lock=a%2Cb mode=shared host=web3 pid=12 user=cron since=100 ttl=900 held=3 nodes=5",
			"LOST lock=x lease=y reason=max",
			"@0 - lock=a%2Cb mode=shared ttl=800 held=4 nodes=5 note=a%20note",
			"@0 - lock=a%2Cb mode=exclusive slots=5 slot=2 ttl=700 held=3 nodes=5",
			"@0 - lock=a%2Cb mode=exclusive waiting=yes host=web4 pid=13 user=cron since=100 ttl=600 held=4 nodes=5",
			"@0 OK n=4")
		got := asked.must(t)
		want := []Holder{
			{Name: "a,b", Mode: "shared", Host: "web3", PID: 12, User: "cron", Since: 100 * time.Millisecond, TTL: 900 * time.Millisecond, Held: 3, Nodes: 5},
			{Name: "a,b", Mode: "shared", TTL: 800 * time.Millisecond, Held: 4, Nodes: 5, Note: "a note"},
			{Name: "a,b", Mode: "exclusive", Slots: 5, Slot: 2, TTL: 700 * time.Millisecond, Held: 3, Nodes: 5},
			{Name: "a,b", Mode: "exclusive", Host: "web4", PID: 13, User: "cron", Since: 100 * time.Millisecond, TTL: 600 * time.Millisecond, Held: 4, Nodes: 5, Waits: true},
		}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("Who:\n%+v, want\n%+v", got, want)
		}
		again := async(func() ([]Holder, error) { return c.Who(t.Context(), "free") })
		d.expect("@0 WHO free")
		d.say("@0 OK n=0")
		if got := again.must(t); len(got) != 0 {
			t.Errorf("Who of a free lock: %+v, want no holder", got)
		}
	})
}

// WhoWaits returns the hosts that wait, with their waiting times if each has one.
func TestWhoWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, d := dialScripted(t)
		for answer, want := range map[string]FleetLock{
			"OK n=0 waiting_hosts=web2,web%2C4 waiting_ms=3100,20 position=2": {
				Name: "job", Wanted: true, WaitingHosts: []string{"web2", "web,4"}, Waiting: []time.Duration{3100 * time.Millisecond, 20 * time.Millisecond}, Position: 2,
			},
			"OK n=0 waiting_hosts=web2 waiting_ms=3100":   {Name: "job", Wanted: true, WaitingHosts: []string{"web2"}, Waiting: []time.Duration{3100 * time.Millisecond}},
			"OK n=0 waiting_hosts=web2 waiting_ms=3100,1": {Name: "job", Wanted: true, WaitingHosts: []string{"web2"}},
			"OK n=0 waiting_hosts=web2 waiting_ms=x":      {Name: "job", Wanted: true, WaitingHosts: []string{"web2"}},
			"OK n=0":                                      {Name: "job"},
		} {
			asked := async(func() (*FleetLock, error) { return c.WhoWaits(t.Context(), "job") })
			d.expect("@0 WHO job")
			d.say("@0 " + answer)
			if got := asked.must(t); !reflect.DeepEqual(*got, want) {
				t.Errorf("%s:\n%+v, want\n%+v", answer, *got, want)
			}
		}
	})
}

func TestList(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, d := dialScripted(t)
		asked := async(func() ([]Entry, error) { return c.List(t.Context()) })
		d.expect("@0 LIST")
		d.say("@0 - lock=job state=held mode=exclusive fence=1795247588294176 ttl=9000 pid=12 user=cron since=1000 note=a%20note",
			"@0 - lock=job state=waiting mode=exclusive pid=13 user=root since=2000",
			"@0 - lock=a%2Cb,c state=waiting mode=shared pid=14 user=root since=2000",
			"@0 - lock=gpu state=held mode=exclusive slots=4 slot=1 fence=9 ttl=9000 pid=15 user=root since=2000",
			"@0 - lock=late state=lost mode=exclusive fence=10 ttl=900 pid=16 user=root since=2000",
			"@0 OK n=5")
		got := asked.must(t)
		want := []Entry{
			{Name: "job", Names: []string{"job"}, Mode: "exclusive", Fence: 1795247588294176, TTL: 9 * time.Second, PID: 12, User: "cron", Since: time.Second, Note: "a note"},
			{Name: "job", Names: []string{"job"}, Waits: true, Mode: "exclusive", PID: 13, User: "root", Since: 2 * time.Second},
			{Name: "a,b,c", Names: []string{"a,b", "c"}, Waits: true, Mode: "shared", PID: 14, User: "root", Since: 2 * time.Second},
			{Name: "gpu", Names: []string{"gpu"}, Mode: "exclusive", Slots: 4, Slot: 1, Fence: 9, TTL: 9 * time.Second, PID: 15, User: "root", Since: 2 * time.Second},
			{Name: "late", Names: []string{"late"}, Lost: true, Mode: "exclusive", Fence: 10, TTL: 900 * time.Millisecond, PID: 16, User: "root", Since: 2 * time.Second},
		}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("List:\n%+v, want\n%+v", got, want)
		}
	})
}

func TestStatus(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, d := dialScripted(t)
		asked := async(func() (*Status, error) { return c.Status(t.Context()) })
		d.expect("@0 STATUS")
		d.say("@0 - node=a address=10.0.0.1:6379 state=ready wakeups=pubsub rtt=1 write=3",
			"@0 - node=b address=unix:/run/redis/b.sock state=quarantined left=2500 : it was restarted",
			"@0 OK n=2 nodes=2 quorum=2 spare=-1 leases=7 left=2500 max_ttl=30000 unnoted=yes table=removed unreloaded=yes build=abc : no quorum for another 3s")
		got := asked.must(t)
		want := &Status{Quorum: 2, Spare: -1, Left: 2500 * time.Millisecond, MaxTTL: 30 * time.Second, Text: "no quorum for another 3s", Unnoted: true, Table: "removed", Unreloaded: true, Counts: map[string]int64{"leases": 7}, Nodes: []Node{
			{Name: "a", Address: "10.0.0.1:6379", State: "ready", Wakeups: "pubsub", RTT: time.Millisecond, Write: 3 * time.Millisecond},
			{Name: "b", Address: "unix:/run/redis/b.sock", State: "quarantined", Left: 2500 * time.Millisecond, Reason: "it was restarted"},
		}}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("Status:\n%+v, want\n%+v", got, want)
		}
	})
}

func TestHello(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, d := dialScripted(t)
		asked := async(func() (Hello, error) { return c.Hello(t.Context()) })
		d.expect("@0 HELLO 1")
		d.say("@0 OK protocol=1 version=1.2 ttl=10000 min_ttl=100 max_ttl=30000 node_timeout=50 max_line=4096")
		want := Hello{"1.2", 10 * time.Second, 100 * time.Millisecond, 30 * time.Second, 50 * time.Millisecond}
		if got := asked.must(t); got != want {
			t.Errorf("Hello: %+v, want %+v", got, want)
		}
	})
}

// A refused query is an error, and not an empty answer.
func TestQueryIsRefused(t *testing.T) {
	for line, look := range map[string]func(context.Context, *Client) (told bool, err error){
		"WHO job": func(ctx context.Context, c *Client) (bool, error) {
			holders, err := c.Who(ctx, "job")
			return holders != nil, err
		},
		"LIST": func(ctx context.Context, c *Client) (bool, error) {
			entries, err := c.List(ctx)
			return entries != nil, err
		},
		"STATUS": func(ctx context.Context, c *Client) (bool, error) {
			status, err := c.Status(ctx)
			return status != nil, err
		},
		"HELLO 1": func(ctx context.Context, c *Client) (bool, error) {
			hello, err := c.Hello(ctx)
			return hello != Hello{}, err
		},
		"PING": func(ctx context.Context, c *Client) (bool, error) { return false, c.Ping(ctx) },
	} {
		synctest.Test(t, func(t *testing.T) {
			c, d := dialScripted(t)
			asked := async(func() (bool, error) { return look(t.Context(), c) })
			d.expect("@0 " + line)
			d.say("@0 - node=a lock=a", "@0 ERR DENIED ttl=10 : rule web does not allow inspect")
			told, err := asked.wait()
			want(t, line, err, ErrDenied)
			if told {
				t.Errorf("%s: a result is returned with the error", line)
			}
		})
	}
}
