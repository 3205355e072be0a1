package client

import "fmt"

// Inherit lets processes that this one starts from now on, and their descendants, hold the
// connection too. If this process is killed, the daemon sees the end of the connection, and
// releases the leases, only after the last of these processes has ended or closed it. Until then
// the daemon extends the leases and reports no loss. Close ends the connection for all of them.
//
// If the daemon restarts without keeping the connection, the Client reconnects. Only processes that
// are started after that inherit the new connection. Without such a process, the leases end with
// this one.
func (c *Client) Inherit() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.inherit = true
	if c.link == nil {
		return nil // the next connection will be inherited
	}
	if err := inheritable(c.link.conn); err != nil {
		return fmt.Errorf("inherit: %w", err)
	}
	return nil
}
