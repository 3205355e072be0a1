package client

// Inherit lets processes that this one starts from now on hold the connection too, and those that
// they start. If this process is killed, the daemon sees the end of the connection, and releases
// the leases, only after the last of these processes has ended or closed it. Until then the leases
// are extended, and nobody is told of a loss. Close ends the connection for all of them.
//
// After a restart of the daemon that did not keep the connection, the Client makes a new one. Only
// processes that are started after that inherit it. Processes that run already do not hold it, and
// the leases end with this process.
func (c *Client) Inherit() error {
	c.mu.Lock()
	c.inherit = true
	c.mu.Unlock()
	l := c.link.Load()
	if l == nil {
		return nil // the next one will be inherited
	}
	return c.inheritIfWanted(l)
}
