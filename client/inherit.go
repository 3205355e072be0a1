package client

// Inherit has the processes that this one starts from now on hold the connection
// too, and those that they start. If this process is killed, the daemon sees the
// end of the connection, and gives the leases back, only when the last of them
// has ended or closed it. Nobody hears of a loss then, and the leases are
// extended as before. Close ends the connection for all of them.
//
// A connection that is made later, after the daemon was restarted without keeping
// this one, is inherited by what is started after that: processes that run
// already hold it no more, and the leases end with this process.
func (c *Client) Inherit() error {
	c.mu.Lock()
	c.inherit = true
	c.mu.Unlock()
	l := c.link.Load()
	if l == nil {
		return nil // the next one is
	}
	return c.inheritIfWanted(l)
}
