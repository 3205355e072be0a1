package describe

import (
	"testing"

	"github.com/redlockd/redlockd/client"
)

// redlock run names the hosts that get the lock before its own, the first five of many.
func TestHostsBefore(t *testing.T) {
	seven := []string{"web1", "web2", "web3", "web4", "web5", "web6", "web7"}
	for _, test := range []struct {
		lock client.FleetLock
		want string
	}{
		{client.FleetLock{WaitingHosts: seven}, ""},
		{client.FleetLock{WaitingHosts: seven, Position: 1}, "next in the wait queue"},
		{client.FleetLock{WaitingHosts: seven, Position: 3}, "position 3 in the wait queue, behind web1, web2"},
		{client.FleetLock{WaitingHosts: seven, Position: 6}, "position 6 in the wait queue, behind web1, web2, web3, web4, web5"},
		{client.FleetLock{WaitingHosts: seven, Position: 7}, "position 7 in the wait queue, behind web1, web2, web3, web4, web5 and 1 more"},
		{client.FleetLock{WaitingHosts: seven, Position: 9}, ""},
	} {
		if got := HostsBefore(&test.lock); got != test.want {
			t.Errorf("position %d: %q, want %q", test.lock.Position, got, test.want)
		}
	}
}
