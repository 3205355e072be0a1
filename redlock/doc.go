// Package redlock takes locks on a quorum of independent Redis masters.
//
// It implements the Redlock algorithm and adds five things. Leases are extended until they
// are released. A loss is reported before the deadline. Errors distinguish "held" from "no
// quorum". Every grant has a fencing token. A node that may have forgotten votes is excluded
// from voting.
//
// # One lock, from top to bottom
//
// [Quorum.Acquire] makes attempts until one is granted. An attempt is a ballot. The client
// sends one script call to every node at the same time, and counts the answers as they
// arrive. The ballot is decided as soon as the remaining answers cannot change it.
//
// Every node has a lane: one goroutine with one connection. The lane sends all calls that
// wait for the node as one group, so throughput grows with the load. Calls stay in order, so
// a release never overtakes the acquire that it cleans up after.
//
// The keeper extends a granted [Lease] when a third of its ttl has passed. It extends many
// leases with one call per node.
//
// # What is promised
//
//   - A lock has at most one holder within that holder's stated deadline. This requires that
//     every node's clock runs at a rate within the drift allowance (1 % of the ttl, plus 2
//     ms). A node that was restarted, flushed or resynchronised does not vote while it may
//     have forgotten a vote that is still valid.
//   - validity = ttl − (now − start) − drift. The client reads start on CLOCK_BOOTTIME before
//     it sends the first byte (Redis, "Distributed locks").
//   - [Lease.Fence] orders grants: if an attempt began after another grant, its token is
//     larger. No two tokens are equal, except for readers whose requests overlap. Both hold
//     even if clocks jump (with one exception, see below) or a holder sleeps past its deadline. They require that no quorum of
//     nodes loses its counters at once; [CountersLost] reports such a loss.
//   - If a holder dies, its lock can be taken again within one ttl.
//   - Locks work as long as a quorum (⌊N/2⌋+1 of the nodes) may vote and answers within the
//     node timeout. A node that hangs delays nobody.
//   - A lease outlives the loss of nodes one after the other: see Repair.
//   - [Lease.Lost] is closed before the deadline, by a timer that depends on no node. A loss
//     is final.
//   - A failed Acquire leaves nothing on the nodes. After a connection breaks, the lane kills
//     the old connection by its id and then repeats unanswered releases. Each acquire carries
//     a not-after in the node's TIME. If it arrives later, it sets nothing.
//
// # Fencing tokens
//
// The counters form a register of which a majority keeps the maximum. Their order comes from
// quorums that share a node, not from clocks. Each node has a hash with 1,024 counters, and a
// lock's name is hashed onto one of them.
//
// The script that sets the key also raises the counter and returns it. The new value is the
// larger of counter + 1 and the attempt's proposal. The proposal is the client's wall clock in
// microseconds. A node ignores a proposal that is more than a second ahead of its own clock.
//
// The token is the largest value that a granting node returned. If a quorum returned that same
// value, one round trip is enough. Otherwise the client writes the value back, and a node
// counts only if this client still holds the lock there.
//
// Tokens stay below 2^53. The client rejects a token that is 26 weeks ahead of what a quorum of
// nodes' clocks say. It excludes the node that returned such a token from voting. A node rejects
// a token that is 52 weeks ahead of its own clock.
//
// # Incarnations and quarantine
//
// A node's hash also holds its epoch. The epoch holds the run_id of the Redis process, a random
// word, and the largest max_ttl of all hosts. It also holds a digest of the node list and the
// prefix, and the node's name. Every script compares the epoch with the admitted one, in the
// command that votes. After a restart, FLUSHALL, a snapshot or a resynchronisation the two
// differ, and the answer is not a vote.
//
// The lane reads INFO and TIME on every new connection before anything else, and then every
// second. It reports [NodeRefused], with the fix as the reason, for a replica, attached
// replicas, cluster mode, or an eviction policy. It does the same for another node list or
// prefix, and for one server under two names. It withdraws the admission if master_replid
// changed, the uptime ran backwards, or the clock jumped by more than the drift allowance.
//
// A node without a valid epoch is [NodeQuarantined]. The first process to see it writes a
// marker: the epoch is pending. Every process then waits max_ttl and a margin (see below), on
// its own CLOCK_BOOTTIME, from when it first saw that marker. Then one process replaces the
// marker with an epoch, in a script that compares the marker first. The same script sets the
// counters to the maximum over at least N − quorum + 1 other nodes that may vote. The other
// processes see the epoch and follow. If a quorum of nodes has no counters (a new fleet, or
// total loss), the counters start from the nodes' clocks.
//
// [Quorum.Admit] ends a quarantine early, for brand-new nodes. [NodeOptions].Durable exempts the
// restart of a node that writes every vote to its disk before it answers. An Acquire with a long
// enough wait outlasts a quarantine. The error of any other Acquire states the time that is left
// ([NoQuorumError].Quarantine).
//
// Each node also stores the words of the other nodes' epochs. A process that sees a new word
// writes it to the other nodes. Words are ordered: each begins with the node's TIME, or with a
// later value than the previous word. Suppose that one process reaches another Redis server
// under a node's name than the other processes do. Then the other nodes tell it that a later
// word exists. It stops counting that node's votes and quarantines it. The other processes see
// the word of that quarantine and do the same. So neither server votes until all processes reach
// the same one.
//
// Leases of processes that did not know of the later word have expired by then. A quarantine
// ends only after N − quorum + 1 other nodes have reported its word for max_ttl and 1.5 s. No
// lease has a deadline later than that, counted from when the client last looked at the granting
// nodes. (It looks once a second, unless the node hangs or the process is stopped.)
//
// Suppose that a quorum of nodes, including this one, can be reached and reports no later word.
// Then no later incarnation votes. In that case the client ignores what the other nodes report.
// So a node that lies cannot exclude another node.
//
// # Repair
//
// After a quorum has confirmed an extension, the client sets the key again on nodes that may vote
// and lack it. It does so only if no other client has the key there, and it includes the fencing
// token. A repaired node counts from the next extension on. An expired lease is never repaired or
// extended.
//
// # Kinds of locks
//
// By default a request is exclusive.
//
// Readers (Request.Shared) hold a lock together. A writer needs a quorum of nodes without a
// reader, and a reader needs a quorum of nodes without a writer. Any two quorums share a node.
//
// A semaphore (Request.Slots) is a set of numbered locks. Each slot has its own quorum and its own
// fencing counter. The attempt names a slot, and a node that refuses it names a free one. (A
// count on each node would admit too many holders, because each holder needs only a quorum.)
//
// Each node grants several names (Request.Names) all or none. They have one lease and one fencing
// token, which all their counters receive. If the names are shared, a node may grant only some of
// them; a failed attempt releases those.
//
// The first holder sets the kind and the number of slots, for as long as it holds the lock.
// Readers' tokens are ordered against writers' tokens. A slot's tokens are ordered within that
// slot.
//
// # Waiting
//
// Each node has a wait queue for each lock: see internal/script/lua/queue.lua. A request that was
// refused enters it, in the call that releases the votes it got. Its ticket is the time at which
// its client asked, on the nodes' clocks, so all queues have the same order. When the lock becomes
// free, the node calls the first request whose process lives, with PUBLISH, on the channel of that
// process. A second connection, the listener, receives the call. So no goroutine needs to read the
// first connection while it is idle.
//
// While it is the turn of a request, the node refuses all other clients ([HeldError].Waiting). A
// turn lasts for a few round trips of the waiter. If it passes unused, the next request has its
// turn, and the entry goes to the end of the queue. When the request asks again, it has its place
// again: otherwise the nodes would have different orders, and each would call another request.
//
// A request asks again when a quorum of nodes has called it. Calls may be lost. So the first
// request in the queue also asks when the holder's lease may have ended, the next three a little
// after one another, and all others every [RenewEntry]. If fewer nodes than a quorum can call,
// requests ask at random intervals.
//
// The first attempt of an Acquire does not enter the queue, unless the caller knows that the lock is
// held (Request.Held), or a request here had to wait for it within the last second. So a free lock
// costs nothing extra. [Quorum.Enter] enters a request before its first attempt. [Quorum.Waiters]
// returns the queue.
//
// A reader does not overtake a writer that waits. Readers that follow each other in the queue are
// called together.
//
// A request for several names is in the queue of the first one that it cannot have. If it is called there
// while another one is held, it moves to that queue with the same ticket. After 16 moves it keeps the names
// that sort before the one that it waits for, for at most 20 turns. So the holder of a name can still acquire
// a later one.
//
// Locks of other Redlock clients call nobody. The first request in the queue asks for them four
// times a second.
//
// [Lease.HandOver] transfers a lock to the next waiter on the same host in one ballot: each node
// exchanges the tokens. This is a new grant with its own fencing token. [Lease.Wanted] reports
// whether others wait. A client that hands over should let them acquire the lock now and then
// (Request.Yield).
//
// # Passing a lock on
//
// HandOver asks no node at all if the nodes confirmed at most [PassWindow] ago that this host holds
// the lock. The token on the nodes then stays, and one grant after the other uses it. Each grant
// has its own ID and fencing token. The fencing tokens come from a block that the nodes reserved
// with the lock (Request.Block). So a grant elsewhere always has a larger one.
//
// While a lock is passed on, the client confirms it every 17 ms in the background. A confirmation
// extends the lease, reserves more fencing tokens, and tells whether other clients wait
// ([Lease.Wanted]). Only nodes that have held the token since the grant count: if the key was
// repaired, another client could have held the lock there in between.
//
// [Quorum.Force] first has the nodes note the token, so that no confirmation succeeds any more. It
// deletes the token when the last one does not count any more.
//
// # Leases that outlast the process
//
// A lease is on the nodes. Another process on the same host can continue it if it has the lease's
// [Record]: see [Quorum.Adopt]. To allow that, a process records:
//
//   - what an attempt may take, before its first byte is sent (Request.BeforeAttempt);
//   - a grant, before it reports the grant to anybody;
//   - a release, before it begins the release;
//   - a loss, before it reports the loss;
//   - a deadline, after it moved (Options.DeadlineChanged, Options.DeadlinesMovedBack). An older
//     deadline is shorter and as safe.
//
// [Quorum.Abandon] releases what was under way when the process ended. No record outlasts the
// boot, because deadlines are instants on CLOCK_BOOTTIME.
//
// # On the nodes
//
// A lock is a plain string key, Prefix+Name. It holds the token: 128 random bits and what [Holder]
// shows, at most 256 bytes. Other Redlock clients on the same nodes exclude this package's clients
// and are excluded by them. They know neither quarantine nor fencing tokens.
//
// If several clients share a lock, their tokens are in a sorted set beside the key. The key then
// holds the kind, and lives as long as the longest of them. Wait queues and sorted
// sets have keys that contain a zero byte, so no lock's name can be equal.
//
// The hash redlockd:node does not depend on the prefix. It holds the epoch, the words of the other
// nodes' epochs, the counters, and the instant until which wait queues may exist. The key
// redlockd:host:ID exists while requests of the process ID wait and it lives. The keys
// redlockd:forced:… record what [Quorum.Force] took away.
//
// To change the node list or the prefix: stop all processes, wait max_ttl, and run HDEL
// redlockd:node epoch on every node.
//
// The Lua scripts (internal/script/lua) are loaded with SCRIPT LOAD and called with EVALSHA. A node
// is Redis 7 or later. It must allow these commands for Prefix* and redlockd:*: SET GET DEL
// PTTL EXISTS PEXPIRE PEXPIREAT HGET HMGET HSET HGETALL ZADD ZREM ZRANGE ZSCORE ZCOUNT ZRANK.
// It must also allow TIME, INFO, PING, EVALSHA, SCRIPT LOAD, CLIENT ID and KILL, and HELLO. With a password it must allow AUTH. A durable node must allow CONFIG GET and ACL
// DRYRUN. To be called, waiters need PUBLISH and SUBSCRIBE for the channels redlockd:*.
//
// # What it cannot do
//
// A write that the holder sent before it noticed the loss cannot be recalled. So the resource must
// check the fencing token.
//
// If a node's clock is set forward, the client notices within a second. The lock may be granted
// to another client in between. A grant that is passed on within [PassWindow] may then have a
// smaller fencing token than that one. If a virtual machine is paused and its CLOCK_BOOTTIME
// stops, the host notices only afterwards.
//
// A vote that a running Redis loses without a trace in INFO goes unnoticed. Examples are DEBUG
// RELOAD NOSAVE, a key that is deleted by hand, and REPLICAOF there and back within a second. So the
// Redis user of this package must not have REPLICAOF and DEBUG, and nobody else should use them. A
// durable node (Node.Durable) can also lose votes unnoticed with its file. The file may be replaced
// by an older one, or the disk may never have written it.
package redlock
