package session

import (
	"fmt"
	"net"
	"testing"
	"testing/synctest"

	"github.com/redlockd/redlockd/ipc/server"
)

// The answer to a WHO with many holders waits while another long answer to the same user is being written,
// as a LIST does: a client that reads nothing must not make the daemon buffer many of them. A short answer
// does not wait.
func TestManyHoldersWaitForAnotherLongAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := startSims(t, 1, nil)
		host, err := d.newHost(d.Daemon)
		if err != nil {
			t.Fatal(err)
		}
		defer host.Close()
		host.Nodes.Settle(t.Context())
		srv, opened, served := newPipeServer(host), make(chan *session, 1), make(chan struct{})
		open := srv.Open
		srv.Open = func(conn *server.Conn) (server.Session, error) {
			s, err := open(conn)
			opened <- s.(*session)
			return s, err
		}
		d.Connect = func() (net.Conn, error) {
			ours, theirs := net.Pipe()
			go func() {
				defer close(served)
				srv.ServeConn(theirs)
			}()
			return ours, nil
		}
		w := d.dial()
		s := <-opened
		for i := range manyHolders + 1 {
			w.Say(fmt.Sprintf("LOCK many mode=shared owner=o%d", i), granted5)
		}
		w.Say("LOCK few", granted5)
		s.listing <- struct{}{} // a long answer is being written
		w.Send("@1 WHO many")
		synctest.Wait()
		w.Send("@2 WHO few")
		w.Want(`@2 - lock=few .*`)
		w.Want(`@2 OK n=1.*`)
		<-s.listing
		for range manyHolders + 1 {
			w.Want(`@1 - lock=many .*`)
		}
		w.Want(fmt.Sprintf(`@1 OK n=%d.*`, manyHolders+1))
		w.Conn.Close()
		<-served
	})
}
