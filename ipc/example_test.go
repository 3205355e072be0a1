package ipc_test

import (
	"fmt"
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
