package server_test

import (
	"bufio"
	"context"
	"fmt"
	"net"

	"github.com/redlockd/redlockd/ipc"
	"github.com/redlockd/redlockd/ipc/server"
)

// pinger is a session that answers PING and nothing else.
type pinger struct{}

func (pinger) InputEnded(bool) {}
func (pinger) Close()          {}
func (pinger) Begin(call *server.Call) server.Work {
	if call.Verb == ipc.VerbPing {
		call.Reply(call.OK().Int("version", 1))
	} else {
		call.Reply(call.Err(ipc.CodeDenied, "only PING is allowed here"))
	}
	return nil
}

func ExampleServer() {
	s := server.Server{Open: func(*server.Conn) (server.Session, error) { return pinger{}, nil }}
	here, there := net.Pipe()
	go s.ServeConn(there)

	fmt.Fprint(here, "@1 PING\n@2 WHO x\n")
	answers := bufio.NewScanner(here)
	for range 2 {
		answers.Scan()
		fmt.Println(answers.Text())
	}
	s.Shutdown(context.Background(), nil)
	// Output:
	// @1 OK version=1
	// @2 ERR DENIED : only PING is allowed here
}
