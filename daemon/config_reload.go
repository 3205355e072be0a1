package daemon

import (
	"fmt"
	"reflect"
	"strings"
)

// CheckReload reports what next changes that cannot change while the daemon
// runs, or nil if next can be used from now on. Only log, access and
// limits can change; files of passwords and certificates are read at every connection
// anyway, so that their content needs no reload.
func (c *Config) CheckReload(next *Config) error {
	var changed []string
	for _, fixed := range []struct {
		name     string
		now, new any
	}{
		{"quorum.key_prefix", c.Quorum.KeyPrefix, next.Quorum.KeyPrefix},
		{"quorum.max_ttl", c.Quorum.MaxTTL, next.Quorum.MaxTTL},
		{"quorum.node_timeout", c.Quorum.NodeTimeout, next.Quorum.NodeTimeout},
		{"lease", c.Lease, next.Lease},
		{"socket", c.Socket, next.Socket},
		{"metrics", c.Metrics, next.Metrics},
	} {
		if !reflect.DeepEqual(fixed.now, fixed.new) {
			changed = append(changed, fixed.name)
		}
	}
	if !configSameNodes(c.Quorum.Nodes, next.Quorum.Nodes) {
		changed = append(changed, "the nodes (a quorum of the old and one of the new need not meet: stop all daemons, wait max_ttl, start them with the new list)")
	}
	if changed == nil {
		return nil
	}
	return fmt.Errorf("a restart is needed to change %s; nothing was changed", strings.Join(changed, ", "))
}

// configSameNodes compares all but the place in the file.
func configSameNodes(a, b []NodeConfig) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		now, next := a[i], b[i]
		now.Pos, next.Pos = "", ""
		if !reflect.DeepEqual(now, next) {
			return false
		}
	}
	return true
}
