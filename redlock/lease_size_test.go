package redlock

import (
	"reflect"
	"testing"
)

// A Lease has at most 288 bytes, because a process may hold tens of thousands. 288 is a size
// class of Go's allocator; the next one is 320.
func TestLeaseIsSmall(t *testing.T) {
	if size := reflect.TypeFor[Lease]().Size(); size > 288 {
		t.Errorf("a Lease takes %d bytes, want at most 288", size)
	}
}
