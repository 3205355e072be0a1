// Package redlock takes locks on a quorum of independent Redis masters: the
// Redlock algorithm, with leases that are kept extended, losses that are told
// before the deadline, and errors that tell "held" from "no quorum".
//
// # One lock, from top to bottom
//
// [Quorum.Acquire] makes attempts until one is granted. An attempt is a ballot:
// one script call put to every node at the same time, counted as the answers
// come, and decided by the answer after which the rest cannot change it. Every
// node has a lane, one goroutine with one connection, which sends everything
// that waits for the node as one group; so the throughput grows with the load,
// and a release never overtakes the acquire that it cleans up after. A granted
// [Lease] is extended by the keeper at a third of its ttl, many leases in one
// call a node.
//
// # What is promised
//
//   - At most one holder inside its stated deadline, as long as every node's
//     clock runs at a rate within the drift allowance (1 % and 2 ms of the ttl)
//     and no node loses what it voted for: it must not restart without its
//     data, be flushed, or be promoted from a replica within a ttl.
//   - validity = ttl − (now − start) − drift, where start is read on
//     CLOCK_BOOTTIME before the first byte is sent (Redis, "Distributed locks").
//   - A lock whose holder died can be taken again one ttl later at the latest.
//   - Locks work as long as a quorum, ⌊N/2⌋+1 of the nodes, answers within the
//     node timeout. One that hangs delays nobody.
//   - [Lease.Lost] is closed before the deadline, by a timer that depends on no
//     node; and it is final.
//   - A failed Acquire leaves nothing behind. Where a connection breaks, the
//     old one is killed by its id before releases that stayed unanswered are
//     repeated, and an acquire that reaches a node too late sets nothing there
//     (its not-after, in the node's TIME).
//
// A write that the holder sent before it noticed the loss is beyond recall.
//
// # On the nodes
//
// A lock is a plain string key, Prefix+Name, that holds the token: 128 random
// bits and what [Holder] shows, at most 256 bytes. Other Redlock clients on the
// same nodes exclude us and are excluded by us. The Lua scripts (lua/*.lua) are
// loaded with SCRIPT LOAD and called with EVALSHA. A node must allow: SET GET
// DEL PTTL PEXPIRE TIME, EVALSHA, SCRIPT LOAD, CLIENT ID and KILL, INFO, HELLO.
package redlock
