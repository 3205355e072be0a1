package ipc_test

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"os"
	"time"

	"github.com/redlockd/redlockd/ipc"
)

func ExampleParseRequest() {
	var req ipc.Request
	if err := ipc.ParseRequest([]byte("@a1 lock nightly%20backup wait=5s"), &req); err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(req.Tag, req.Verb, req.Names[0], req.Wait)
	os.Stdout.Write(req.AppendTo(nil))

	err := ipc.ParseRequest([]byte("TRY x wait=5s"), &req)
	fmt.Println(err.(*ipc.Error).Code)
	// Output:
	// a1 LOCK nightly backup 5s
	// @a1 LOCK nightly%20backup wait=5000
	// OPTION
}

func ExampleResponse() {
	var r ipc.Response
	r.OK("a1").Str("lock", "nightly backup").Int("fence", 17).Ms("ttl", 9893*time.Millisecond)
	os.Stdout.Write(r.AppendTo(nil))
	// Output:
	// @a1 OK lock=nightly%20backup fence=17 ttl=9893
}

// pinger knows one verb.
type pinger struct{}

func (pinger) InputEnded(bool) {}
func (pinger) Close()          {}
func (pinger) Begin(call *ipc.Call) ipc.Work {
	if call.Verb == ipc.VerbPing {
		call.Reply(call.OK().Int("version", 1))
	} else {
		call.Reply(call.Err(ipc.CodeDenied, "only PING is allowed here"))
	}
	return nil
}

func ExampleServer() {
	s := ipc.Server{Open: func(*ipc.Conn) (ipc.Session, error) { return pinger{}, nil }}
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
