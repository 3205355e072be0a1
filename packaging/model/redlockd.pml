/* redlockd: the algorithm as it is built, for three nodes and two daemons.
 *
 * model_test.go runs every row of its table. One configuration by hand:
 *
 *   spin -a -DATTEMPTS=3 redlockd.pml && cc -O2 -DSAFETY -DCOLLAPSE -o pan pan.c && ./pan
 *   spin -t -p -g -DATTEMPTS=3 redlockd.pml     shows the counterexample, if there is one
 *
 * Time is counted in ticks. Every instant is kept as the number of ticks until then,
 * so a run may be of any length. A process may be delayed between any two steps, and a
 * call for any time. Bounds, each a -D flag:
 *
 *   TTL       ttl, max_ttl and quarantine, in ticks
 *   ATTEMPTS  how often all daemons together try to take the lock, or hand it over
 *   EXTENDS   how often leases are extended, and then repaired on nodes that lost them
 *   CRASHES   how often a node loses its data: keys, counters and epoch
 *   JUMPS     how often the clock of a node jumps, so that its key expires early
 *   FORCES    how often an operator takes the lock away
 *   LOSSES    how often an answer of a node is lost
 *   DEATHS    how often a daemon dies with its client and all that it knows
 *   HANDOVER  1: a holder may hand over to the next client of its host
 *   PASSES    how often a daemon passes its lock on without asking a node. Every attempt
 *             then reserves BLOCK fencing tokens. A pass is allowed for WINDOW ticks
 *   EXCHANGES how often the nodes get a new token for a lease
 *   DOWNGRADES  how often daemon 0 makes an exclusive lease a shared one. Then daemon 1
 *             may also try to share the lock, as a reader. Not with DEATHS or FREE
 *   ROLES     with DOWNGRADES: daemon 1 only reads
 *   PATIENT   attempts are given up, and leases released, only when their time is over:
 *             fewer runs, in which some planted mistakes are found sooner
 *
 * Properties, each an assert:
 *   one holder       no grant while another client is inside its deadline (not with JUMPS)
 *   apart            no reader is inside its deadline while a writer is (not with JUMPS). A
 *                    holder stops writing before its lease is downgraded
 *   counted shared   a node counts for the extension of a shared lease only if it has the
 *                    lock as shared. When a downgrade succeeds, a quorum has (with DOWNGRADES)
 *   stays shared     a node that made a lease shared never has it as exclusive again
 *   nothing stays    each token on a node is one of a lease or of an attempt, or a call or a
 *                    release of it is under way to the node: so after a release neither token
 *                    of the lease is there (with EXCHANGES or DOWNGRADES)
 *   forgetful vote   no vote is counted of a node that may have forgotten a lock
 *   token order      a grant that was requested after another grant has the larger token
 *   token unique     no two exclusive grants have the same token
 *   FORCE is exact   after the answer of FORCE, the lock that it took is not passed on, and no
 *                    extension succeeds that asks later (with EXCHANGES)
 *   becomes free     no key outlives its last user for longer than two ttl (with FREE)
 *
 * Where the model is simpler than the code:
 *   - There is one lock: no slots, no several names. Readers wait for no writer, and no
 *     writer for readers: the wait queue is left out.
 *   - Without DOWNGRADES the lock is exclusive. With it, only daemon 0 downgrades, and only
 *     daemon 1 starts as a reader.
 *   - A downgrade begins when no extension of the lease is under way.
 *   - No state file: an exchange or a downgrade is noted at once, and a daemon that dies
 *     leaves nothing that is adopted.
 *   - An exchange may follow any grant. In the code, it follows a pass, half a second later.
 *   - An answer reaches the daemon when the node executes the call, or never. A late
 *     answer is the same as a late step of the daemon, which the model has.
 *   - An attempt begins only when all nodes have executed the daemon's releases.
 *   - No quorum of nodes loses its counters.
 *   - A ballot calls only nodes whose lane is empty. A connection that breaks is a call
 *     that is executed late, and an answer that is lost.
 *   - Fencing tokens start at 1 and grow by 1. The proposals of the daemons' clocks, which
 *     only make them larger, are left out.
 *   - All clocks tick together, so the drift allowance is 0.
 *   - A FORCE sees all nodes at one instant.
 *   - FORCE takes a token that holds the lock alone. The token may be downgraded meanwhile.
 *   - Without PASSES and EXCHANGES, FORCE notes and deletes the token in one step.
 *   - Each extension is a confirmation: a node that has noted the token refuses it. In the
 *     code, a node also extends a noted token that it still has, until FORCE deletes it.
 *   - Each node that did not confirm an extension is repaired. In the code, only those
 *     that answered that they do not have the token.
 *   - A hand-over of a noted token is refused. In the code, the node also releases the token.
 *   - A block is reserved by its attempt. In the code, extensions reserve one, too.
 *
 * Planted mistakes, each a -D flag, and the property that it breaks:
 *   MINORITY            one node is a quorum                          token order, one holder
 *   LATE_START          validity is measured from the answer          one holder
 *   BLIND_RELEASE       a release does not compare the token          one holder
 *   NO_EPOCH            a vote does not compare the epoch             forgetful vote
 *   NO_QUARANTINE       a node without data is admitted at once       forgetful vote
 *   SHORT_QUARANTINE    a node is admitted a tick early               forgetful vote
 *   NO_COPY             a node that lost its counter starts at 0      token order
 *   EARLY_COPY          counters are copied before the quarantine     token order
 *   NO_WRITE_BACK       the largest token of a quorum is enough       token order
 *   BLIND_WRITE_BACK    the write-back does not compare the key       token unique, if
 *                       FORCES or JUMPS take the key away from a node that granted it
 *   BLIND_FORCE         FORCE deletes the key, whoever holds it       one holder
 *   NO_NOT_AFTER        an acquire is executed however late           becomes free
 *   WINDOW_FROM_ANSWER  the window starts when the answer is read     FORCE is exact
 *   HASTY_FORCE         FORCE does not wait for the window            FORCE is exact
 *   START_WRITE_BACK    the first token of a block is written back    token order
 *   FORGETS_FORMER      a release forgets the former token            nothing stays
 *   HANDS_OVER_NEW      a hand-over forgets the former token          nothing stays
 *   EXCHANGES_AGAIN     an exchanged token is exchanged again         nothing stays
 *   RELEASE_OVERTAKES   a release overtakes the call before it        nothing stays
 *   BLIND_EXCHANGE      an exchange does not compare the token        one holder
 *   EXCHANGE_FORCED     a node exchanges a token that FORCE noted     FORCE is exact
 *   REPAIRS_EARLY       an extension that asked before the exchange
 *                       repairs with the new token                    FORCE is exact
 *   READER_MINORITY     one node is a quorum for a reader             apart
 *   WRITER_JOINS        a node that readers share grants a writer     apart
 *   WRITES_ON           the holder writes until a downgrade succeeds  apart
 *   WRITES_AGAIN        a lease whose downgrade failed is exclusive   apart
 *   PASSES_SHARED       a downgraded lease is passed on to a writer   token order, apart
 *   DOWNGRADE_MINORITY  one node is a quorum for a downgrade          counted shared
 *   ASKS_ONCE           later extensions do not ask to share          counted shared
 *   REPAIR_EXCLUSIVE    a downgraded lease is repaired as exclusive   stays shared
 */

#define N 3 /* nodes */
#define D 2 /* daemons, each with the client that it serves */
#define READER 1 /* the daemon that may try to share the lock; the other one downgrades */

#ifndef TTL
#define TTL 2
#endif
#ifndef ATTEMPTS
#define ATTEMPTS 2
#endif
#ifndef EXTENDS
#define EXTENDS 0
#endif
#ifndef CRASHES
#define CRASHES 0
#endif
#ifndef JUMPS
#define JUMPS 0
#endif
#ifndef FORCES
#define FORCES 0
#endif
#ifndef LOSSES
#define LOSSES 0
#endif
#ifndef DEATHS
#define DEATHS 0
#endif
#ifndef HANDOVER
#define HANDOVER 0
#endif
#ifndef PASSES
#define PASSES 0
#endif
#ifndef EXCHANGES
#define EXCHANGES 0
#endif
#ifndef DOWNGRADES
#define DOWNGRADES 0
#endif
#ifndef BLOCK
#define BLOCK (PASSES > 0 -> 2 : 1)
#endif
#define WINDOW 1

#ifndef TRACE
/* trace.pml replaces these, to compare what the code did with this model. Here they change nothing. */
#define SET byte
#define SHARED 7 /* the value of a key that readers share: no token */
#define MAY(step, d, n) true
#define MAY_GRANT(d) true
#define MAY_EXTEND(d) true
#define MAY_EXECUTE(d, n, k) true
#define EXECUTED(n, k) skip
#define MAY_RELEASE(d, n, k) true
#define IN_TURN(d) true
#define ENDS(d) true
#define MAY_READ(n) true
#define MAY_FORCE(d) true
#define FORCE_BEGAN skip
#define MAY_TICK true
#define COUNT_TICK skip
#define DONE skip
#define MAY_LOSE (losses < LOSSES)
#define COUNT_LOSS losses++
#define FAILS_EARLY(d) false
#define MAY_CRASH true
#define SHOWN (key[0] && key[0] != SHARED && (key[0] == key[1] || key[0] == key[2]) -> key[0] : 0)
#endif

#define TOKENS (ATTEMPTS + EXCHANGES)
#if TOKENS >= SHARED
#error too many tokens
#endif
#if DOWNGRADES > 0 && (DEATHS > 0 || defined(FREE))
#error a shared key names no token, and a daemon has one token of it on each node
#endif

#define BIT(i) (1 << (i))
#define AT(d, n) ((d) * N + (n))

/* --- the nodes */

byte key[N];     /* the token that holds the lock here, or SHARED; 0: the key is not there */
byte ttl[N];     /* ticks until the key expires */
byte counter[N]; /* the fencing counter */
byte epoch[N];   /* the word of the incarnation; 0: the node has no data */
byte pending;    /* nodes whose epoch nobody has vouched for yet: a bit each */
SET notes[N];    /* tokens that FORCE took away: a bit each */
#if DOWNGRADES > 0
byte member[D * N]; /* the token by which the daemon's client shares the lock here; 0: none */
byte until[D * N];  /* ticks until it expires */
#define SHARES(k, t) (member[k] == (t))
#else
#define SHARES(k, t) false
#endif

/* --- the daemons */

#define IDLE 0
#define ACQUIRING 1
#define WRITING_BACK 2
#define HELD 3

byte phase[D];
byte token[D];    /* of the attempt, then of the lease */
byte elapsed[D];  /* ticks since the ballot started, at most TTL */
byte votes[D];    /* nodes that granted */
byte same[D];     /* those that gave exactly the fencing token fence */
byte fence[D];    /* the largest that a node gave, then the grant's */
byte deadline[D]; /* ticks until the grant ends */
byte confirmed[D]; /* nodes that confirmed the extension under way: a bit each */
byte extending;   /* daemons with an extension under way: a bit each */
byte old[D];      /* of a hand-over: the token before */

#if EXCHANGES > 0
byte former[D];   /* the token that nodes may have instead of token; 0: none */
byte exchanging;  /* daemons whose extension under way asks for the exchange: a bit each */
#define FORMER(d) former[d]
#else
#define FORMER(d) 0
#endif
#if DOWNGRADES > 0
byte shared;      /* daemons whose attempt or lease is a shared one: a bit each */
#define IS_SHARED(d) (shared & BIT(d))
#else
#define IS_SHARED(d) false
#endif
#if PASSES > 0
byte reserved[D]; /* the last fencing token of the block */
byte since[D];    /* ticks since the last confirmation started, at most WINDOW */
#endif
#if PASSES > 0 || defined(BLIND_WRITE_BACK)
byte granted[D];  /* nodes whose grants were counted: a bit each */
#endif

byte known[D * N];      /* the incarnation whose votes the daemon counts; 0: none */
byte marker[D * N];     /* the pending incarnation that it has seen; 0: none */
byte quarantine[D * N]; /* ticks until it may vouch for that one */
byte copied[D * N];     /* other nodes whose counters it has read since: a bit each */
byte copy[D * N];       /* and their maximum */

/* --- the lanes: the calls of one daemon to one node are executed in order */

#define ACQUIRE 1
#define RAISE 2 /* the write-back of a fencing token */
#define EXTENSION 3
#define REPAIR 4
#define SWAP 5
#define FORCE 6
#define NOTE 7 /* of a FORCE that waits until no pass can follow */
#define EXCHANGE 8 /* an extension that also exchanges the token */
#define JOIN 9 /* an acquire of a reader */
#define DOWNGRADE 10 /* an extension that also makes the lease shared */
#define REPAIR_SHARED 11

byte call[D * N];      /* the call under way; 0: none */
byte subject[D * N];   /* its token */
byte expected[D * N];  /* the epoch that it compares */
byte argument[D * N];  /* RAISE and REPAIR: the fencing token; SWAP and EXCHANGE: the new token;
                          DOWNGRADE: the former token */
byte released[D * N];  /* a release behind it: the token; 0: none */
byte released2[D * N]; /* the other token of the lease, or of the hand-over */
#if EXCHANGES > 0 && HANDOVER
byte dropped[D * N];   /* a release before it: the former token of a lease that is handed over */
#define DROPPED(k) dropped[k]
#else
#define DROPPED(k) 0
#endif

/* --- bounds, and what only the properties see */

byte attempts, extends, crashes, jumps, forces, losses, deaths, words;
byte owes[N];    /* ticks for which a vote that this node has forgotten may still count */
byte above[D];   /* the largest fencing token that was granted before the attempt began */
byte largest;    /* the largest that was granted */
int used;        /* all that were granted: a bit each */
SET revoked;     /* tokens of locks that FORCE took away: a bit each */
#if PASSES > 0
byte passes;
#endif
#if PASSES + EXCHANGES > 0
byte forced;     /* the token that FORCE takes away; 0: none */
byte noted;      /* nodes that had it, and have noted it: a bit each */
byte deleted;    /* nodes that have deleted the key since: a bit each */
byte window;     /* ticks until FORCE may delete the key */
SET answered;    /* tokens whose FORCE was answered: a bit each */
#endif
#if EXCHANGES > 0
byte exchanges;
byte late;       /* daemons whose extension was asked for after such an answer: a bit each */
#endif
#if DOWNGRADES > 0
byte downgrades;
byte downgradedOn; /* lanes whose node made the lease shared: a bit each */
hidden byte reading, writing;
#endif
#if EXCHANGES + DOWNGRADES > 0
hidden byte claimed;
#endif
#ifdef FREE
byte over[TOKENS + 1]; /* from 1 on, ticks since the last user of a token ended */
#define ENDED(t) over[t] = (t -> 1 : 0)
#else
#define ENDED(t) skip
#endif

#if defined(FREE) && !defined(NO_NOT_AFTER)
#define TIMELY(t) (over[t] <= TTL) /* the not-after of the call, in the node's TIME */
#else
#define TIMELY(t) true
#endif

#ifdef PATIENT
#define MAY_END(late) (late)
#else
#define MAY_END(late) true
#endif

byte i; /* of loops: 0 between steps */

#ifdef MINORITY
#define QUORUM 1
#else
#define QUORUM 2
#endif
#ifdef LATE_START
#define VALIDITY(d) TTL
#else
#define VALIDITY(d) (TTL - elapsed[d])
#endif
#ifdef NO_WRITE_BACK
#define AGREED(d) (votes[d] >= QUORUM)
#else
#define AGREED(d) (PASSES == 0 && same[d] >= QUORUM)
#endif
#ifdef START_WRITE_BACK
#define WRITTEN_BACK(d) fence[d]
#else
#define WRITTEN_BACK(d) (fence[d] + BLOCK - 1)
#endif
#if PASSES > 0
#ifdef WINDOW_FROM_ANSWER
#define CONFIRMED(d) since[d] = 0
#else
#define CONFIRMED(d) since[d] = (elapsed[d] < WINDOW -> elapsed[d] : WINDOW)
#endif
#define RESERVE(d) reserved[d] = fence[d] + BLOCK - 1
#define RESERVED(d) reserved[d]
#define FORGET_BLOCK(d) reserved[d] = 0; since[d] = 0
#else
#define CONFIRMED(d) skip
#define RESERVE(d) skip
#define RESERVED(d) fence[d]
#define FORGET_BLOCK(d) skip
#endif
#if PASSES > 0 || defined(BLIND_WRITE_BACK) /* otherwise only they have the key */
#define GRANTED_BY(d, n) (granted[d] & BIT(n))
#define NOTE_GRANT(d, n) granted[d] = granted[d] | BIT(n)
#define FORGET_GRANTS(d) granted[d] = 0
#else
#define GRANTED_BY(d, n) true
#define NOTE_GRANT(d, n) skip
#define FORGET_GRANTS(d) skip
#endif
#ifdef HASTY_FORCE
#define FORCE_WINDOW 0
#else
#define FORCE_WINDOW WINDOW
#endif
#ifdef NO_EPOCH
#define VOTES(d, n) true
#else
#define VOTES(d, n) (epoch[n] == expected[AT(d, n)] && !(pending & BIT(n)))
#endif
#ifdef BLIND_WRITE_BACK
#define STILL_OURS(n, t) true
#else
#define STILL_OURS(n, t) (key[n] == t)
#endif
#ifdef BLIND_RELEASE
#define RELEASES(k, n) (released[k])
#else
#define RELEASES(k, n) (key[n] && (key[n] == released[k] || key[n] == released2[k]))
#endif
#ifdef BLIND_FORCE
#define FORCES_KEY(n, t) (key[n] != 0)
#else
#define FORCES_KEY(n, t) (key[n] == t)
#endif
#ifdef SHORT_QUARANTINE
#define QUARANTINE (TTL - 1)
#else
#ifdef NO_QUARANTINE
#define QUARANTINE 0
#else
#define QUARANTINE TTL
#endif
#endif
#ifdef EARLY_COPY
#define MAY_COPY(d, n) true
#else
#define MAY_COPY(d, n) (quarantine[AT(d, n)] == 0)
#endif
#ifdef NO_COPY
#define HAS_COPIES(d, n) true
#else
#define HAS_COPIES(d, n) (copied[AT(d, n)] == (7 & ~BIT(n)))
#endif

#ifdef FORGETS_FORMER
#define ALSO_RELEASED(d) 0
#else
#define ALSO_RELEASED(d) FORMER(d)
#endif
#ifdef HANDS_OVER_NEW
#define ALSO_DROPPED(d) 0
#else
#define ALSO_DROPPED(d) FORMER(d)
#endif
#ifdef EXCHANGES_AGAIN
#define MAY_EXCHANGE(d) true
#else
#define MAY_EXCHANGE(d) (FORMER(d) == 0)
#endif
#if EXCHANGES > 0 && !defined(REPAIRS_EARLY)
#define MAY_REPAIR(d) (former[d] == 0 || (exchanging & BIT(d)))
#else
#define MAY_REPAIR(d) true
#endif
#ifdef BLIND_EXCHANGE
#define EXCHANGES_KEY(n, t) (key[n] != 0)
#else
#define EXCHANGES_KEY(n, t) (key[n] == t)
#endif
#ifdef EXCHANGE_FORCED
#define UNNOTED(n, t) true
#else
#define UNNOTED(n, t) (!(notes[n] & BIT(t)))
#endif
#ifdef RELEASE_OVERTAKES
#define RELEASE_IS_NEXT(k) true
#else
#define RELEASE_IS_NEXT(k) (!call[k])
#endif
#ifdef ROLES
#define MAY_WRITE(d) (d != READER)
#else
#define MAY_WRITE(d) true
#endif
#ifdef WRITER_JOINS
#define WRITER_MAY_JOIN true
#else
#define WRITER_MAY_JOIN false
#endif
#ifdef READER_MINORITY
#define NEEDED(d) (IS_SHARED(d) -> 1 : QUORUM)
#else
#define NEEDED(d) QUORUM
#endif
#ifdef DOWNGRADE_MINORITY
#define EXTENDED(d) (votes[d] >= (IS_SHARED(d) -> 1 : QUORUM))
#else
#define EXTENDED(d) (votes[d] >= QUORUM)
#endif
#ifdef ASKS_ONCE
#define ASKS_TO_SHARE(d) false
#define ASKED_ONCE true
#else
#define ASKS_TO_SHARE(d) IS_SHARED(d)
#define ASKED_ONCE false
#endif
#if DOWNGRADES > 0
#define HAD(n, t) (key[n] == t || member[AT(0, n)] == t || member[AT(1, n)] == t)
#else
#define HAD(n, t) (key[n] == t)
#endif
#ifdef REPAIR_EXCLUSIVE
#define REPAIRS_AS_SHARED(d) false
#else
#define REPAIRS_AS_SHARED(d) IS_SHARED(d)
#endif
#ifdef PASSES_SHARED
#define MAY_PASS(d) true
#else
#define MAY_PASS(d) (!IS_SHARED(d) && FORMER(d) == 0)
#endif

#define HOLDS(d) (phase[d] == HELD && deadline[d] > 0 && !(revoked & (BIT(token[d]) | BIT(FORMER(d)))))
#ifdef WRITES_ON
#define WRITES(d) (HOLDS(d) && !(IS_SHARED(d) && !(extending & BIT(d))))
#else
#define WRITES(d) (HOLDS(d) && !IS_SHARED(d))
#endif
#define READS(d) (HOLDS(d) && !WRITES(d))

/* exclusion is checked whenever a client may do more than before. */
inline exclusion() {
#if JUMPS == 0
	assert(!(WRITES(0) && WRITES(1))); /* one holder */
#if DOWNGRADES > 0
	writing = WRITES(0) + WRITES(1);
	reading = READS(0) + READS(1);
	assert(writing == 0 || reading == 0); /* apart */
#endif
#endif
	skip
}

#define CLAIMS(d, n, t) (t == 0 || t == token[d] || t == FORMER(d) || t == old[d] || \
	t == subject[AT(d, n)] || t == argument[AT(d, n)] || t == released[AT(d, n)] || t == released2[AT(d, n)] || t == DROPPED(AT(d, n)))

/* nothing_stays is checked whenever a node has executed something. */
inline nothing_stays(d, n, k) {
#if EXCHANGES + DOWNGRADES > 0 && DEATHS == 0
	claimed = (key[n] == SHARED || CLAIMS(0, n, key[n]) || CLAIMS(1, n, key[n]));
#if DOWNGRADES > 0
	claimed = claimed && CLAIMS(d, n, member[k]);
#endif
	assert(claimed); /* nothing stays */
#endif
	skip
}

/* send puts a call on the empty lanes of all nodes whose votes the daemon counts. */
inline send(d, what, t, more) {
	do
	:: i < N ->
		if
		:: known[AT(d, i)] && !call[AT(d, i)] && !released[AT(d, i)] ->
			call[AT(d, i)] = what; subject[AT(d, i)] = t;
			expected[AT(d, i)] = known[AT(d, i)]; argument[AT(d, i)] = more
		:: else
		fi;
		i++
	:: else -> break
	od;
	i = 0
}

/* release is sent to every node, also to those that refused or were not called. */
inline release(d, t, other) {
	do
	:: i < N -> released[AT(d, i)] = t; released2[AT(d, i)] = other; i++
	:: else -> break
	od;
	i = 0
}

inline end_ballot(d) {
	elapsed[d] = 0; votes[d] = 0; same[d] = 0; confirmed[d] = 0;
#if EXCHANGES > 0
	late = late & ~BIT(d); exchanging = exchanging & ~BIT(d);
#endif
	extending = extending & ~BIT(d)
}

inline go_idle(d) {
	phase[d] = IDLE; token[d] = 0; fence[d] = 0; deadline[d] = 0; above[d] = 0;
#if EXCHANGES > 0
	former[d] = 0;
#endif
#if DOWNGRADES > 0
	shared = shared & ~BIT(d);
	downgradedOn = downgradedOn & ~(7 << (d * N));
#endif
	FORGET_BLOCK(d);
	FORGET_GRANTS(d);
	end_ballot(d)
}

/* grant is the moment in which the client reads OK. */
inline grant(d) {
	phase[d] = HELD;
	deadline[d] = VALIDITY(d);
	exclusion();
	assert(fence[d] > above[d]); /* token order */
	if
	:: IS_SHARED(d)
	:: else ->
		assert(!(used & BIT(fence[d]))); /* token unique */
		used = used | BIT(fence[d])
	fi;
	if :: fence[d] > largest -> largest = fence[d] :: else fi;
	above[d] = 0;
	RESERVE(d);
	CONFIRMED(d);
	end_ballot(d)
}

#if PASSES > 0
/* pass_on gives the lock to the next client of the host, which asked for it just now. */
inline pass_on(d) {
	above[d] = largest;
	fence[d]++;
#if DOWNGRADES > 0
	shared = shared & ~BIT(d);
	exclusion();
#endif
	assert(!(answered & BIT(token[d]))); /* FORCE is exact */
	assert(fence[d] > above[d]); /* token order */
	assert(!(used & BIT(fence[d]))); /* token unique */
	used = used | BIT(fence[d]);
	largest = fence[d];
	above[d] = 0
}
#endif

hidden byte ask, about, with; /* of one step */

/* extend asks the nodes for an extension of a lease. */
inline extend(d) {
	extending = extending | BIT(d);
#if EXCHANGES > 0
	if :: answered & (BIT(token[d]) | BIT(former[d])) -> late = late | BIT(d) :: else fi;
	if :: former[d] -> exchanging = exchanging | BIT(d) :: else fi;
#endif
	ask = (ASKS_TO_SHARE(d) -> DOWNGRADE : (FORMER(d) -> EXCHANGE : EXTENSION));
	about = (ask == EXCHANGE -> FORMER(d) : token[d]);
	with = (ask == EXCHANGE -> token[d] : FORMER(d));
	send(d, ask, about, with);
	ask = 0; about = 0; with = 0
}

#define MANY(nodes) ((nodes) == 3 || (nodes) >= 5) /* a quorum of three */
#define NO_RELEASES(d) (!released[AT(d, 0)] && !released[AT(d, 1)] && !released[AT(d, 2)])
#define NO_CALLS(d) (!call[AT(d, 0)] && !call[AT(d, 1)] && !call[AT(d, 2)])

proctype Daemon(byte d) {
end:	do
	/* Acquire: a fresh token, and one call to every node. */
	:: d_step { MAY_WRITE(d) && phase[d] == IDLE && attempts < ATTEMPTS && NO_RELEASES(d) && MAY(BEGINS, d, 0) ->
		DONE;
		attempts++;
		token[d] = attempts; above[d] = largest; phase[d] = ACQUIRING;
		send(d, ACQUIRE, token[d], 0)
	}
#if DOWNGRADES > 0
	/* The same of a reader. */
	:: d_step { d == READER && phase[d] == IDLE && attempts < ATTEMPTS && NO_RELEASES(d) ->
		attempts++;
		token[d] = attempts; above[d] = largest; phase[d] = ACQUIRING;
		shared = shared | BIT(d);
		send(d, JOIN, token[d], 0)
	}
#endif
	/* Hand-over: the holder is done, and one call exchanges its token for the next client's. */
	:: d_step { HANDOVER && phase[d] == HELD && deadline[d] && !IS_SHARED(d) && attempts < ATTEMPTS && NO_RELEASES(d) && NO_CALLS(d) ->
		attempts++;
		old[d] = token[d];
#if EXCHANGES > 0 && HANDOVER
		do
		:: i < N -> dropped[AT(d, i)] = ALSO_DROPPED(d); i++
		:: else -> break
		od;
		i = 0;
		ENDED(former[d]);
#endif
		go_idle(d);
		token[d] = attempts; above[d] = largest; phase[d] = ACQUIRING;
		send(d, SWAP, old[d], token[d])
	}
	/* A quorum granted. Its largest token is used if a quorum gave exactly that, or has it written back. */
	:: d_step { phase[d] == ACQUIRING && votes[d] >= NEEDED(d) && elapsed[d] < TTL && (!AGREED(d) || MAY_GRANT(d)) ->
		if
		:: AGREED(d) -> DONE; old[d] = 0; grant(d)
		:: else -> phase[d] = WRITING_BACK; votes[d] = 0; same[d] = 0; send(d, RAISE, token[d], WRITTEN_BACK(d))
		fi
	}
	:: d_step { phase[d] == WRITING_BACK && votes[d] >= NEEDED(d) && elapsed[d] < TTL && MAY_GRANT(d) -> DONE; old[d] = 0; grant(d) }
	/* The attempt is given up: nothing stays behind. */
	:: d_step { (phase[d] == ACQUIRING || phase[d] == WRITING_BACK) && MAY_END(elapsed[d] == TTL) && MAY(FAILS, d, 0) ->
		DONE;
		release(d, token[d], old[d]);
		ENDED(token[d]); ENDED(old[d]);
		old[d] = 0;
		go_idle(d)
	}
	/* The client is done, or LOST was sent. */
	:: d_step { phase[d] == HELD && MAY_END(deadline[d] == 0) && (MAY(STOPS, d, 0) || ENDS(d)) ->
		if :: MAY(STOPS, d, 0) -> DONE :: else fi;
		release(d, token[d], ALSO_RELEASED(d));
		ENDED(token[d]); ENDED(FORMER(d));
		go_idle(d)
	}
	/* Extension: decided before the old deadline, or not at all. Then it is repaired where it is missing. */
	:: d_step { extends < EXTENDS && phase[d] == HELD && deadline[d] && !(extending & BIT(d)) && NO_CALLS(d) && MAY(EXTENDS_LEASE, d, 0) ->
		DONE;
		extends++;
		extend(d)
	}
	:: d_step { phase[d] == HELD && (extending & BIT(d)) && EXTENDED(d) && deadline[d] && MAY_EXTEND(d) ->
		DONE;
#if EXCHANGES > 0
		assert(!(late & BIT(d))); /* FORCE is exact */
#endif
#if DOWNGRADES > 0 && CRASHES + JUMPS == 0
		assert(!IS_SHARED(d) || !HOLDS(d) || /* counted shared */
			(member[AT(d, 0)] == token[d]) + (member[AT(d, 1)] == token[d]) + (member[AT(d, 2)] == token[d]) >= 2);
#endif
		if :: VALIDITY(d) > deadline[d] -> deadline[d] = VALIDITY(d) :: else fi;
		CONFIRMED(d);
		exclusion();
		do
		:: i < N ->
			if
			:: MAY_REPAIR(d) && !(confirmed[d] & BIT(i)) && known[AT(d, i)] && !call[AT(d, i)] ->
				call[AT(d, i)] = (REPAIRS_AS_SHARED(d) -> REPAIR_SHARED : REPAIR); subject[AT(d, i)] = token[d];
				expected[AT(d, i)] = known[AT(d, i)]; argument[AT(d, i)] = RESERVED(d)
			:: else
			fi;
			i++
		:: else -> break
		od;
		i = 0;
		end_ballot(d)
	}
	:: d_step { phase[d] == HELD && (extending & BIT(d)) && (elapsed[d] == TTL || IS_SHARED(d) || FAILS_EARLY(d)) ->
		if :: FAILS_EARLY(d) -> DONE :: else fi;
		end_ballot(d);
#ifdef WRITES_AGAIN
		shared = shared & ~BIT(d);
		exclusion()
#endif
	}
#if EXCHANGES > 0
	/* Exchange: from now on, extensions ask the nodes to exchange the token for a new one. */
	:: d_step { exchanges < EXCHANGES && phase[d] == HELD && deadline[d] && !IS_SHARED(d) && MAY_EXCHANGE(d) && MAY(EXCHANGES_TOKEN, d, 0) ->
		DONE;
		exchanges++;
		former[d] = token[d];
		token[d] = ATTEMPTS + exchanges
	}
#endif
#if DOWNGRADES > 0
	/* Downgrade: the holder has stopped writing, and the lease is a shared one, whatever the nodes answer. */
	:: d_step { d != READER && downgrades < DOWNGRADES && phase[d] == HELD && deadline[d] && !IS_SHARED(d) && !(extending & BIT(d)) ->
		downgrades++;
		shared = shared | BIT(d);
#ifdef ASKS_ONCE
		extending = extending | BIT(d);
		send(d, DOWNGRADE, token[d], FORMER(d))
#else
		extend(d)
#endif
	}
#endif
	/* The daemon and its client die. Calls that are under way still reach the nodes. */
	:: d_step { deaths < DEATHS && phase[d] != IDLE ->
		deaths++;
		ENDED(token[d]); ENDED(FORMER(d)); ENDED(old[d]);
		old[d] = 0;
		go_idle(d);
		do
		:: i < N -> known[AT(d, i)] = 0; marker[AT(d, i)] = 0; quarantine[AT(d, i)] = 0; copied[AT(d, i)] = 0; copy[AT(d, i)] = 0; i++
		:: else -> break
		od;
		i = 0
	}
#if PASSES + EXCHANGES == 0
	/* FORCE: only a token that a quorum shows. */
	:: d_step { forces < FORCES && NO_CALLS(d) && NO_RELEASES(d) && SHOWN ->
		forces++;
		about = SHOWN;
		revoked = revoked | BIT(about);
		send(d, FORCE, about, 0);
		about = 0
	}
#else
#if PASSES > 0
	/* Pass: the holder is done, and the next client of the host has the same token. */
	:: d_step { passes < PASSES && phase[d] == HELD && deadline[d] && MAY_PASS(d) && fence[d] < reserved[d] && since[d] < WINDOW ->
		passes++;
		pass_on(d)
	}
#endif
	/* FORCE: only a token that a quorum shows. The nodes note it, which ends its confirmations. */
	:: d_step { forces < FORCES && NO_CALLS(d) && NO_RELEASES(d) && SHOWN && MAY_FORCE(d) ->
		FORCE_BEGAN;
		forces++;
		forced = SHOWN; noted = 0; deleted = 0; window = FORCE_WINDOW;
		send(d, NOTE, forced, 0)
	}
	/* A quorum had it. When no pass can follow, the key is deleted. */
	:: d_step { forced && MANY(noted) && window == 0 ->
		noted = 0;
		revoked = revoked | BIT(forced);
		send(d, FORCE, forced, 0)
	}
	:: d_step { forced && MANY(deleted) && MAY(FORCE_ANSWERED, d, 0) ->
		DONE;
		answered = answered | BIT(forced);
		forced = 0; noted = 0; deleted = 0; window = 0
	}
#endif
	od
}

inline set(n, t) { key[n] = t; ttl[n] = TTL }

#if DOWNGRADES > 0
/* join makes a token share the key. */
inline join(n, k, t) { member[k] = t; until[k] = TTL; key[n] = SHARED; ttl[n] = TTL }

/* leave ends that. The key expires with the last member. */
inline leave(n, k) {
	member[k] = 0; until[k] = 0;
	ttl[n] = (until[AT(0, n)] > until[AT(1, n)] -> until[AT(0, n)] : until[AT(1, n)]);
	if :: ttl[n] == 0 -> key[n] = 0 :: else fi
}
#endif

inline raise(n, to) {
	if :: counter[n] < to -> counter[n] = to :: else fi
}

/* A grant of node n reaches the daemon, unless its attempt is over. */
inline vote(d, n, t) {
	if
	:: phase[d] == ACQUIRING && token[d] == t ->
#if JUMPS == 0
		assert(owes[n] == 0); /* forgetful vote */
#endif
		votes[d]++;
		NOTE_GRANT(d, n);
		if
		:: counter[n] > fence[d] -> fence[d] = counter[n]; same[d] = 1
		:: counter[n] == fence[d] -> same[d]++
		:: else
		fi
	:: else
	fi
}

inline executed(k) { call[k] = 0; subject[k] = 0; expected[k] = 0; argument[k] = 0 }

#define FREE_FOR(n, t) ((key[n] == 0 || key[n] == t || WRITER_MAY_JOIN && key[n] == SHARED) && !(notes[n] & BIT(t)) && TIMELY(t))

#define MAY_JOIN(n, t) ((key[n] == 0 || key[n] == SHARED) && !(notes[n] & BIT(t)) && TIMELY(t))

/* confirm is a node's vote for an extension, unless that is over. */
inline confirm(d, n, t) {
	if
	:: heard && (extending & BIT(d)) && (token[d] == t || FORMER(d) == t) ->
#if DOWNGRADES > 0
		assert(!IS_SHARED(d) || member[AT(d, n)] == t); /* counted shared */
#endif
		votes[d]++;
		confirmed[d] = confirmed[d] | BIT(n)
	:: else
	fi
}

/* Lane is one node's side of the calls of one daemon. Each step is one script. */
proctype Lane(byte d; byte n; byte k) {
	bit heard;
end:	do
	:: atomic { call[k] && !DROPPED(k) && MAY_EXECUTE(d, n, k) ->
		if :: heard = 1 :: MAY_LOSE -> COUNT_LOSS; heard = 0 fi;
		d_step {
			if
			:: !VOTES(d, n)
			:: VOTES(d, n) && call[k] == ACQUIRE && FREE_FOR(n, subject[k]) ->
				set(n, subject[k]);
				counter[n]++;
				if :: heard -> vote(d, n, subject[k]) :: else fi
			:: VOTES(d, n) && call[k] == SWAP && (key[n] == 0 || key[n] == subject[k]) && !(notes[n] & BIT(subject[k])) && TIMELY(argument[k]) ->
				set(n, argument[k]);
				counter[n]++;
				if :: heard -> vote(d, n, argument[k]) :: else fi
			:: VOTES(d, n) && call[k] == RAISE && (STILL_OURS(n, subject[k]) || SHARES(k, subject[k])) ->
				raise(n, argument[k]);
				if :: heard && phase[d] == WRITING_BACK && token[d] == subject[k] && GRANTED_BY(d, n) -> votes[d]++ :: else fi
			:: VOTES(d, n) && call[k] == EXTENSION && key[n] == subject[k] && !(notes[n] & BIT(subject[k])) ->
				set(n, subject[k]); /* TTL is the largest: this never shortens it */
				if
				:: !IS_SHARED(d) || ASKED_ONCE -> confirm(d, n, subject[k])
				:: else
				fi
			:: VOTES(d, n) && call[k] == REPAIR && key[n] == 0 && FREE_FOR(n, subject[k]) ->
#if DOWNGRADES > 0
				assert(!(downgradedOn & BIT(k))); /* stays shared */
#endif
				set(n, subject[k]);
				raise(n, argument[k])
			:: VOTES(d, n) && call[k] == FORCE ->
				notes[n] = notes[n] | BIT(subject[k]);
				if :: FORCES_KEY(n, subject[k]) -> key[n] = 0; ttl[n] = 0 :: else fi;
#if DOWNGRADES > 0
				if :: member[AT(0, n)] == subject[k] -> leave(n, AT(0, n)) :: else fi;
				if :: member[AT(1, n)] == subject[k] -> leave(n, AT(1, n)) :: else fi;
#endif
#if PASSES + EXCHANGES > 0
				if :: forced == subject[k] -> deleted = deleted | BIT(n) :: else fi
			:: VOTES(d, n) && call[k] == NOTE ->
				notes[n] = notes[n] | BIT(subject[k]);
				if :: heard && forced == subject[k] && HAD(n, forced) -> noted = noted | BIT(n) :: else fi
#endif
#if EXCHANGES > 0
			:: VOTES(d, n) && call[k] == EXCHANGE && (key[n] == argument[k] ||
					EXCHANGES_KEY(n, subject[k]) && UNNOTED(n, subject[k]) && UNNOTED(n, argument[k])) ->
				set(n, argument[k]);
				if
				:: !IS_SHARED(d) -> confirm(d, n, argument[k])
				:: else
				fi
#endif
#if DOWNGRADES > 0
			:: VOTES(d, n) && call[k] == JOIN && MAY_JOIN(n, subject[k]) ->
				join(n, k, subject[k]);
				counter[n]++;
				if :: heard -> vote(d, n, subject[k]) :: else fi
			:: VOTES(d, n) && call[k] == DOWNGRADE && (key[n] == subject[k] || SHARES(k, subject[k]) ||
					argument[k] && key[n] == argument[k] && UNNOTED(n, subject[k]) && UNNOTED(n, argument[k])) ->
				join(n, k, subject[k]);
				downgradedOn = downgradedOn | BIT(k);
				confirm(d, n, subject[k])
			:: VOTES(d, n) && call[k] == REPAIR_SHARED && MAY_JOIN(n, subject[k]) ->
				join(n, k, subject[k]);
				raise(n, argument[k])
#endif
			:: else
			fi;
			EXECUTED(n, k);
			executed(k);
			nothing_stays(d, n, k);
			heard = 0
		}
	}
#ifdef TRACE
	:: d_step { call[k] && MAY_LOSE_CALL(d, k) -> executed(k) }
#endif
#if EXCHANGES > 0 && HANDOVER
	:: d_step { dropped[k] ->
		if :: key[n] == dropped[k] -> key[n] = 0; ttl[n] = 0 :: else fi;
		dropped[k] = 0;
		nothing_stays(d, n, k)
	}
#endif
	:: d_step { released[k] && RELEASE_IS_NEXT(k) && !DROPPED(k) && (RELEASES(k, n) && MAY_RELEASE(d, n, k) || !RELEASES(k, n) && IN_TURN(d)) ->
		if :: RELEASES(k, n) -> DONE; key[n] = 0; ttl[n] = 0 :: else fi;
#if DOWNGRADES > 0
		if :: member[k] && (member[k] == released[k] || member[k] == released2[k]) -> leave(n, k) :: else fi;
#endif
		released[k] = 0; released2[k] = 0;
		nothing_stays(d, n, k)
	}
#if CRASHES + DEATHS > 0
	/* The daemon looks at the node. The first one that sees no epoch marks it as pending. */
	:: d_step { epoch[n] == 0 && MAY(MARKS, d, n) || epoch[n] && (epoch[n] != known[k] && !(pending & BIT(n)) || epoch[n] != marker[k] && (pending & BIT(n))) ->
		if
		:: epoch[n] == 0 -> DONE; words++; epoch[n] = words; pending = pending | BIT(n)
		:: else
		fi;
		copied[k] = 0; copy[k] = 0;
		if
		:: pending & BIT(n) -> known[k] = 0; marker[k] = epoch[n]; quarantine[k] = QUARANTINE
		:: else -> known[k] = epoch[n]; marker[k] = 0; quarantine[k] = 0
		fi
	}
	/* After the quarantine the counters of the others are read, one after the other. */
	:: d_step { marker[k] && MAY_COPY(d, n) && MAY_READ((n + 1) % N) && !(copied[k] & BIT((n + 1) % N)) && known[AT(d, (n + 1) % N)] &&
			known[AT(d, (n + 1) % N)] == epoch[(n + 1) % N] && !(pending & BIT((n + 1) % N)) ->
		copied[k] = copied[k] | BIT((n + 1) % N);
		copy[k] = (counter[(n + 1) % N] > copy[k] -> counter[(n + 1) % N] : copy[k])
	}
	:: d_step { marker[k] && MAY_COPY(d, n) && MAY_READ((n + 2) % N) && !(copied[k] & BIT((n + 2) % N)) && known[AT(d, (n + 2) % N)] &&
			known[AT(d, (n + 2) % N)] == epoch[(n + 2) % N] && !(pending & BIT((n + 2) % N)) ->
		copied[k] = copied[k] | BIT((n + 2) % N);
		copy[k] = (counter[(n + 2) % N] > copy[k] -> counter[(n + 2) % N] : copy[k])
	}
	/* One script: it compares the marker, raises the counter, and writes the epoch. */
	:: d_step { marker[k] && quarantine[k] == 0 && HAS_COPIES(d, n) && epoch[n] == marker[k] && (pending & BIT(n)) && MAY(ADMITS, d, n) ->
		DONE;
		pending = pending & ~BIT(n);
		raise(n, copy[k]);
		known[k] = epoch[n]; marker[k] = 0; copied[k] = 0; copy[k] = 0
	}
#endif
	od
}

#define TICK(x) x = (x > 0 -> x - 1 : 0)

/* expire ends all that the node has of the lock. */
inline expire(n) {
	key[n] = 0; ttl[n] = 0;
#if DOWNGRADES > 0
	member[AT(0, n)] = 0; until[AT(0, n)] = 0; member[AT(1, n)] = 0; until[AT(1, n)] = 0
#endif
}

inline lose_data(n) {
	owes[n] = ttl[n]; expire(n); counter[n] = 0; epoch[n] = 0; notes[n] = 0; pending = pending & ~BIT(n)
}

proctype Environment() {
end:	do
	:: d_step { MAY_TICK ->
		COUNT_TICK;
		do
		:: i < N ->
			TICK(ttl[i]); TICK(owes[i]);
			if :: ttl[i] == 0 -> key[i] = 0 :: else fi;
			i++
		:: else -> break
		od;
		i = 0;
		do
		:: i < D ->
			TICK(deadline[i]);
#if PASSES > 0
			if :: phase[i] == HELD && since[i] < WINDOW -> since[i]++ :: else fi;
#endif
			if
			:: (phase[i] == ACQUIRING || phase[i] == WRITING_BACK || (extending & BIT(i))) && elapsed[i] < TTL -> elapsed[i]++
			:: else
			fi;
			i++
		:: else -> break
		od;
		i = 0;
#if PASSES + EXCHANGES > 0
		if :: MANY(noted) -> TICK(window) :: else fi;
#endif
		do
		:: i < D * N ->
			TICK(quarantine[i]);
#if DOWNGRADES > 0
			TICK(until[i]);
			if :: until[i] == 0 -> member[i] = 0 :: else fi;
#endif
			i++
		:: else -> break
		od;
		i = 0;
#ifdef FREE
		do
		:: i < TOKENS -> i++; if :: over[i] && over[i] <= 2 * TTL -> over[i]++ :: else fi
		:: else -> break
		od;
		i = 0;
		assert(over[key[0]] <= 2 * TTL && over[key[1]] <= 2 * TTL && over[key[2]] <= 2 * TTL) /* becomes free */
#endif
	}
#if CRASHES > 0 /* nodes are alike, so the first crash is of node 0 */
	:: d_step { crashes < CRASHES && MAY_CRASH -> crashes++; lose_data(0) }
#if CRASHES > 1
	:: d_step { crashes > 0 && crashes < CRASHES -> crashes++; lose_data(1) }
#endif
#endif
#if JUMPS > 0
	:: d_step { jumps < JUMPS -> jumps++; expire(0) }
	:: d_step { jumps > 0 && jumps < JUMPS -> jumps++; expire(1) }
#endif
	od
}

init {
	atomic {
		words = 1;
		epoch[0] = 1; epoch[1] = 1; epoch[2] = 1;
		known[0] = 1; known[1] = 1; known[2] = 1; known[3] = 1; known[4] = 1; known[5] = 1;
		/* Spin tries the process that was started last first, so that planted mistakes are
		   found soon: calls are executed before daemons go on, and time passes last. */
		run Environment();
		run Daemon(0); run Daemon(1);
		run Lane(0, 0, 0); run Lane(0, 1, 1); run Lane(0, 2, 2);
		run Lane(1, 0, 3); run Lane(1, 1, 4); run Lane(1, 2, 5)
	}
}
