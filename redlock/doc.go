// Package redlock takes locks on a quorum of independent Redis masters: the
// Redlock algorithm, with leases that are kept extended, losses that are told
// before the deadline, errors that tell "held" from "no quorum", fencing tokens,
// and nodes that have no vote while they may have forgotten one.
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
//     clock runs at a rate within the drift allowance (1 % and 2 ms of the ttl).
//     A node that was restarted, flushed or resynchronised has no vote while it
//     may have forgotten one that it owes.
//   - validity = ttl − (now − start) − drift, where start is read on
//     CLOCK_BOOTTIME before the first byte is sent (Redis, "Distributed locks").
//   - [Lease.Fence]: a grant whose attempt began after another grant has the
//     larger token, and no two tokens are equal (but for those of readers whose
//     requests cross), even where clocks jump or a holder sleeps past its deadline,
//     as long as no quorum of nodes loses its counters at once ([CountersLost] tells
//     of that).
//   - A lock whose holder died can be taken again one ttl later at the latest.
//   - Locks work as long as a quorum, ⌊N/2⌋+1 of the nodes, may vote and answers
//     within the node timeout. One that hangs delays nobody.
//   - A lease outlives the loss of nodes one after the other: see below.
//   - [Lease.Lost] is closed before the deadline, by a timer that depends on no
//     node; and it is final.
//   - A failed Acquire leaves nothing behind. Where a connection breaks, the
//     old one is killed by its id before releases that stayed unanswered are
//     repeated, and an acquire that reaches a node too late sets nothing there
//     (its not-after, in the node's TIME).
//
// # Fencing tokens
//
// A register of which a majority keeps the maximum: order comes from quorums
// that have a node in common, not from clocks. Each node has a hash with 1,024
// counters, and a lock's name belongs to one of them. The script that sets the
// key also sets the counter to the larger of counter + 1 and what the attempt
// proposes (its wall clock in microseconds, which the node ignores where it is
// more than a second ahead of its own), and returns it. The token is the largest
// that a granting node returned. If a quorum returned that very one, it was one
// round trip; otherwise it is written back, and a node counts only if the lock
// is still ours there. Tokens stay below 2^53: one that is far ahead of what a
// quorum of the nodes' clocks say (26 weeks) is not believed, and the node that gave
// it has no vote; nor does a node take over what is 52 weeks ahead of its own clock.
//
// # Incarnations and quarantine
//
// A node's hash also holds its epoch: the run_id of the Redis process, a random
// word, the largest max_ttl of all hosts, a digest of the node list and the prefix, the
// node's name. Every script compares it, in the command that votes, with the one that
// was admitted, so a restart, FLUSHALL, a snapshot or a resynchronisation shows
// up in that very answer, which is no vote then. INFO and TIME are read on every
// new connection before anything else, and every second: a replica, attached
// replicas, cluster mode, an eviction policy, another node list or prefix, or one server
// under two names is [NodeRefused], with the fix as the reason; a changed
// master_replid, an uptime that runs backwards, or a clock that jumped by more
// than the drift allowance takes the admission back.
//
// A node without a valid epoch is [NodeQuarantined]. Whoever sees it first marks
// the epoch as pending; every process waits max_ttl (and a bit longer, see below) from
// when it first saw that marker, by its own CLOCK_BOOTTIME, and then one replaces the
// marker by an epoch, in a script that compares it, with counters that are the maximum over at least
// N − quorum + 1 other nodes that may vote. The others see that and follow. Where
// a quorum of nodes has no counters (a new fleet, or total loss), these begin from
// the nodes' clocks. [Quorum.Admit] ends a quarantine early, for brand-new nodes.
// [NodeOptions].Durable exempts the restart of a node that writes every vote to
// its disk before it answers. An Acquire that waits rides a quarantine out; the
// error of one that does not has what is left of it ([NoQuorumError].Quarantine).
//
// On each node stand the words of the other nodes' epochs, too, written by whoever
// sees a new one; a word begins with the node's TIME, or later than the one before.
// So a process that reaches another Redis under a node's name than the rest does finds
// out from the other nodes that there is a later one, counts no vote of its own any
// more, and quarantines it; and the rest does the same by that quarantine's word, so
// that neither has a vote until all processes reach the same one. What they hold that
// did not know it is over by then: a quarantine is not over before N − quorum + 1 other
// nodes have said its word for max_ttl and 1.5 s, and no lease has a deadline that is
// farther than that from when the nodes that grant it were last looked at (once a second,
// but for one that was hanging, or a process that was stopped). So where as many nodes as
// are a quorum, with the one in question, are heard and say nothing of a later one, there is
// none that votes: what the rest says is not believed then, and one node that lies keeps no
// other from voting.
//
// # Repair
//
// When a quorum has confirmed an extension, the key is set again on nodes that
// may vote and lack it, if nobody else has it there, with the fencing token.
// Such a node counts from the next extension on. A lapsed lease is never
// repaired nor extended.
//
// # Kinds of locks
//
// What a Request asks for alone excludes all others. Readers (Request.Shared) have
// the lock together: a writer needs a quorum of nodes with no reader, a reader one
// with no writer, and any two quorums have a node in common. A semaphore
// (Request.Slots) is so many numbered locks, each with a quorum and a fencing
// counter of its own; the attempt names the place, and a node that refuses it names
// one that is free. (A count on each node would let too many in: each of them needs
// only a quorum of the nodes.) Several names (Request.Names) are taken all or none
// by each node, have one lease, and one fencing token, which their counters all get;
// of those that are shared, a node may take some, which are given back with the
// attempt. The kind, and the number of places, are what the first one makes them
// while it holds. Readers' tokens are ordered against writers'; those of a place,
// against others of that place.
//
// # Waiting
//
// Who is refused and waits leaves a bell on the node, a key that the release
// deletes, and has CLIENT TRACKING tell when that happens: on a second connection,
// the listener, so that nobody has to read the first one. The bell is read behind
// the ballot in the same round trip; where it is missing by then, a release came in
// between. When a quorum of nodes have rung, it tries again after a random time of a
// few round trips, so that those who were woken together do not split the votes; the
// window doubles where they did. An extension rings no bell, and a hand-over
// neither. What nobody tells of, the end of a lease that is extended no more, comes
// when it is due; and some four times a ttl there is an attempt in any case. The first
// attempt of an Acquire has no bell: a lock that is free costs nothing for it. Of
// another client's lock the key itself is listened to.
//
// A writer that readers keep waiting leaves a mark, by which nodes refuse readers
// who come later ([Quorum.Intend] does so before it asks).
//
// Whoever has had 16 others before him, because he is farther from the nodes or because
// several names are never free at once, leaves a mark for himself alone: each node keeps
// the lock for the first one who does so, and refuses all others ([HeldError].Waiting). It
// lasts for a quarter of the time that those others took, and ends by itself; and if that
// was not enough, he waits for twice as many before the next one. Of several names those
// are kept, in the order of their keys, up to the first that somebody holds: who holds that
// one and wants a later one is not kept out. A single name is not kept for who must poll:
// others who poll come sooner.
//
// [Lease.HandOver] gives a lock to the next one on the same host in one ballot, in
// which each node exchanges the tokens: a new grant, with a fencing token of its
// own. [Lease.Wanted] says whether others wait; who hands over should let them have
// it now and then (Request.Yield).
//
// # Leases that outlast the process
//
// A lease is on the nodes, and another process on the same host can go on with it
// that has its [Record]: [Quorum.Adopt]. Whoever wants that writes down what an
// attempt is about to take before its first byte leaves (Request.Noting), a grant
// before anybody is told, a release before it is begun, the loss before it is told,
// and deadlines when they have moved (Options.Moved, Options.Aged): an older deadline is as safe, and shorter.
// What was under way when the process ended is given back: [Quorum.Abandon].
// Nothing of that outlasts the boot: deadlines are instants on CLOCK_BOOTTIME.
//
// # On the nodes
//
// A lock is a plain string key, Prefix+Name, that holds the token: 128 random
// bits and what [Holder] shows, at most 256 bytes. Other Redlock clients on the
// same nodes exclude us and are excluded by us, but know neither quarantine nor
// fencing tokens. Where several share a lock, their tokens are in a sorted set
// beside the key, which has the kind as its value, as long as the longest of them.
// Bell, marks and set have keys that no name can make: a zero byte is in them. The
// hash redlockd:node holds the epoch, the words of the other nodes', the counters, and until
// when locks may be kept for somebody, whatever the prefix; redlockd:forced:… notes
// what [Quorum.Force] took away. To change the node list, or the prefix: stop all processes, wait
// max_ttl, HDEL redlockd:node epoch on every node.
//
// The Lua scripts (internal/script/lua) are loaded with SCRIPT LOAD and called with
// EVALSHA. A node is Redis 7 or later and must allow, for Prefix* and
// redlockd:*: SET GET MGET DEL PTTL EXISTS PEXPIRE PEXPIREAT HGET HMGET HSET HGETALL
// ZADD ZREM ZRANGE ZSCORE ZREMRANGEBYSCORE, and TIME, INFO, PING, EVALSHA, SCRIPT
// LOAD, CLIENT ID, KILL, TRACKING and CACHING, HELLO; AUTH with a password; and
// CONFIG GET and ACL DRYRUN where it is durable. Without CLIENT TRACKING who waits
// asks again and again.
//
// # What it cannot do
//
// A write that the holder sent before it noticed the loss is beyond recall: what
// is written to must check the fencing token. A node's clock that is set forward
// is noticed within a second, and a lock may be given away in between. A host
// whose CLOCK_BOOTTIME stands still while it is stopped (a virtual machine)
// notices afterwards. A vote that a living Redis loses without a trace in INFO is
// not seen: DEBUG RELOAD NOSAVE, a key that is deleted by hand, REPLICAOF there
// and back within a second; nor one that a durable node (Node.Durable) loses with
// its file, which was replaced by an older one, or never written by the disk. So the Redis user of this package must not have
// REPLICAOF and DEBUG, and nobody else should use them.
package redlock
