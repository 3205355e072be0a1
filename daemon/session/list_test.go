package session

import (
	"testing"

	"github.com/redlockd/redlockd/ipc/server"
)

// A LIST that waits for another LIST of the same user delays no other request of its connection. It
// ends when its client cancels it.
func TestListDoesNotBlockTheConnection(t *testing.T) {
	d := readyHost(t)
	srv := d.NewServer()
	opened := make(chan *session, 1)
	srv.Open = func(conn *server.Conn) (server.Session, error) {
		s, err := d.open(conn)
		opened <- s.(*session)
		return s, err
	}
	w, _ := dialWithin(t, srv)
	s := <-opened
	w.Say("LOCK a beat=30s", granted5)
	s.listing <- struct{}{} // another connection's LIST is being written
	w.Send("@1 LIST\n@2 BEAT a")
	w.Want(`@2 OK lock=a`)
	w.Say("@2 UNLOCK a", `@2 OK lock=a`)
	w.Send("@3 LIST\n@4 CANCEL 3")
	w.wantAll(`@3 ERR CANCELLED .*`, `@4 OK`)
	<-s.listing
	w.Want(`@1 OK n=0`)
}
