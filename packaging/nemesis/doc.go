// Command nemesis looks for broken promises of redlockd in real processes.
//
// It starts redis-servers, daemons and client processes, breaks them by a seeded schedule, records
// the answers that the clients got, and checks that history:
//
//	go run . -for 1h                  three daemons, five nodes, every kind of fault
//	go run . -for 1h -grants 1000000 -faults 10000 -page figures.md     until there are so many
//	go run . -for 1m -admit           nodes vote again at once: violations are expected
//	go run . -for 1m -contender redsync     the same faults against redsync: likewise
//	go run . -h                       all flags
//
// The exit code is 0 if no promise was broken, 1 if one was, and 69 if the run could not be made.
// It needs Linux, redis-server and cc; for network cuts and full disks also root, ip and nft. All
// traffic stays in a network namespace of its own.
//
// It owns the faults, the record and the checks. It uses the daemon and the client protocol from
// outside only, and nothing imports it.
package main
