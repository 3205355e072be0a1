/* redlockd: the algorithm as it is built, for three nodes and two daemons.
 *
 * ./check.sh runs every row of its table. One configuration by hand:
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
 *   PATIENT   attempts are given up, and leases released, only when their time is over:
 *             fewer runs, in which some planted mistakes are found sooner
 *
 * Properties, each an assert:
 *   one holder       no grant while another client is inside its deadline (not with JUMPS)
 *   forgetful vote   no vote is counted of a node that may have forgotten a lock
 *   token order      a grant that was requested after another grant has the larger token
 *   token unique     no two grants have the same token
 *   FORCE is exact   a lock is not passed on after the FORCE that took it was answered
 *   becomes free     no key outlives its last user for longer than two ttl (with FREE)
 *
 * Where the model is simpler than the code:
 *   - There is one lock, and it is exclusive: no shared locks, so no downgrade; no slots or
 *     several names.
 *   - An answer reaches the daemon when the node executes the call, or never. A late
 *     answer is the same as a late step of the daemon, which the model has.
 *   - A ballot calls only nodes whose lane is empty. A connection that breaks is a call
 *     that is executed late, and an answer that is lost.
 *   - Fencing tokens start at 1 and grow by 1. The proposals of the daemons' clocks, which
 *     only make them larger, are left out.
 *   - All clocks tick together, so the drift allowance is 0.
 *   - A FORCE sees all nodes at one instant.
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
 */

#define N 3 /* nodes */
#define D 2 /* daemons, each with the client that it serves */

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
#ifndef BLOCK
#define BLOCK (PASSES > 0 -> 2 : 1)
#endif
#define WINDOW 1

#define BIT(i) (1 << (i))
#define AT(d, n) ((d) * N + (n))

/* --- the nodes */

byte key[N];     /* the token that holds the lock here; 0: the key is not there */
byte ttl[N];     /* ticks until the key expires */
byte counter[N]; /* the fencing counter */
byte epoch[N];   /* the word of the incarnation; 0: the node has no data */
byte pending;    /* nodes whose epoch nobody has vouched for yet: a bit each */
byte notes[N];   /* tokens that FORCE took away: a bit each */

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

byte call[D * N];      /* the call under way; 0: none */
byte subject[D * N];   /* its token */
byte expected[D * N];  /* the epoch that it compares */
byte argument[D * N];  /* RAISE and REPAIR: the fencing token; SWAP: the new token */
byte released[D * N];  /* a release behind it: the token; 0: none */
byte released2[D * N]; /* of a hand-over: the other one */

/* --- bounds, and what only the properties see */

byte attempts, extends, crashes, jumps, forces, losses, deaths, words;
byte owes[N];    /* ticks for which a vote that this node has forgotten may still count */
byte above[D];   /* the largest fencing token that was granted before the attempt began */
byte largest;    /* the largest that was granted */
int used;        /* all that were granted: a bit each */
byte revoked;    /* tokens of locks that FORCE took away: a bit each */
#if PASSES > 0
byte passes;
byte forced;     /* the token that FORCE takes away; 0: none */
byte noted;      /* nodes that have noted it: a bit each */
byte deleted;    /* nodes that have deleted the key since: a bit each */
byte window;     /* ticks until FORCE may delete the key */
byte answered;   /* tokens whose FORCE was answered: a bit each */
#endif
#ifdef FREE
byte over[ATTEMPTS + 1]; /* from 1 on, ticks since the last user of a token ended */
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

#define HOLDS(d) (phase[d] == HELD && deadline[d] > 0 && !(revoked & BIT(token[d])))

inline one_holder() {
#if JUMPS == 0
	assert(!(HOLDS(0) && HOLDS(1)));
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
	extending = extending & ~BIT(d)
}

inline go_idle(d) {
	phase[d] = IDLE; token[d] = 0; fence[d] = 0; deadline[d] = 0; above[d] = 0;
	FORGET_BLOCK(d);
	FORGET_GRANTS(d);
	end_ballot(d)
}

/* grant is the moment in which the client reads OK. */
inline grant(d) {
	phase[d] = HELD;
	deadline[d] = VALIDITY(d);
	one_holder();
	assert(fence[d] > above[d]); /* token order */
	assert(!(used & BIT(fence[d]))); /* token unique */
	used = used | BIT(fence[d]);
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
	assert(!(answered & BIT(token[d]))); /* FORCE is exact */
	assert(fence[d] > above[d]); /* token order */
	assert(!(used & BIT(fence[d]))); /* token unique */
	used = used | BIT(fence[d]);
	largest = fence[d];
	above[d] = 0
}
#endif

#define MANY(nodes) ((nodes) == 3 || (nodes) >= 5) /* a quorum of three */
#define NO_RELEASES(d) (!released[AT(d, 0)] && !released[AT(d, 1)] && !released[AT(d, 2)])
#define NO_CALLS(d) (!call[AT(d, 0)] && !call[AT(d, 1)] && !call[AT(d, 2)])

proctype Daemon(byte d) {
	byte old; /* of a hand-over: the token before */
end:	do
	/* Acquire: a fresh token, and one call to every node. */
	:: d_step { phase[d] == IDLE && attempts < ATTEMPTS && NO_RELEASES(d) ->
		attempts++;
		token[d] = attempts; above[d] = largest; phase[d] = ACQUIRING;
		send(d, ACQUIRE, token[d], 0)
	}
	/* Hand-over: the holder is done, and one call exchanges its token for the next client's. */
	:: d_step { HANDOVER && phase[d] == HELD && deadline[d] && attempts < ATTEMPTS && NO_RELEASES(d) && NO_CALLS(d) ->
		attempts++;
		old = token[d];
		go_idle(d);
		token[d] = attempts; above[d] = largest; phase[d] = ACQUIRING;
		send(d, SWAP, old, token[d])
	}
	/* A quorum granted. Its largest token is used if a quorum gave exactly that, or has it written back. */
	:: d_step { phase[d] == ACQUIRING && votes[d] >= QUORUM && elapsed[d] < TTL ->
		if
		:: AGREED(d) -> old = 0; grant(d)
		:: else -> phase[d] = WRITING_BACK; votes[d] = 0; same[d] = 0; send(d, RAISE, token[d], WRITTEN_BACK(d))
		fi
	}
	:: d_step { phase[d] == WRITING_BACK && votes[d] >= QUORUM && elapsed[d] < TTL -> old = 0; grant(d) }
	/* The attempt is given up: nothing stays behind. */
	:: d_step { (phase[d] == ACQUIRING || phase[d] == WRITING_BACK) && MAY_END(elapsed[d] == TTL) ->
		release(d, token[d], old);
		ENDED(token[d]); ENDED(old);
		old = 0;
		go_idle(d)
	}
	/* The client is done, or LOST was sent. */
	:: d_step { phase[d] == HELD && MAY_END(deadline[d] == 0) ->
		release(d, token[d], 0);
		ENDED(token[d]);
		go_idle(d)
	}
	/* Extension: decided before the old deadline, or not at all. Then it is repaired where it is missing. */
	:: d_step { extends < EXTENDS && phase[d] == HELD && deadline[d] && !(extending & BIT(d)) && NO_CALLS(d) ->
		extends++;
		extending = extending | BIT(d);
		send(d, EXTENSION, token[d], 0)
	}
	:: d_step { phase[d] == HELD && (extending & BIT(d)) && votes[d] >= QUORUM && deadline[d] ->
		if :: VALIDITY(d) > deadline[d] -> deadline[d] = VALIDITY(d) :: else fi;
		CONFIRMED(d);
		one_holder();
		do
		:: i < N ->
			if
			:: !(confirmed[d] & BIT(i)) && known[AT(d, i)] && !call[AT(d, i)] ->
				call[AT(d, i)] = REPAIR; subject[AT(d, i)] = token[d];
				expected[AT(d, i)] = known[AT(d, i)]; argument[AT(d, i)] = RESERVED(d)
			:: else
			fi;
			i++
		:: else -> break
		od;
		i = 0;
		end_ballot(d)
	}
	:: d_step { phase[d] == HELD && (extending & BIT(d)) && elapsed[d] == TTL -> end_ballot(d) }
	/* The daemon and its client die. Calls that are under way still reach the nodes. */
	:: d_step { deaths < DEATHS && phase[d] != IDLE ->
		deaths++;
		ENDED(token[d]); ENDED(old);
		old = 0;
		go_idle(d);
		do
		:: i < N -> known[AT(d, i)] = 0; marker[AT(d, i)] = 0; quarantine[AT(d, i)] = 0; copied[AT(d, i)] = 0; copy[AT(d, i)] = 0; i++
		:: else -> break
		od;
		i = 0
	}
#if PASSES == 0
	/* FORCE: only a token that a quorum shows. */
	:: d_step { forces < FORCES && NO_CALLS(d) && NO_RELEASES(d) && key[0] && (key[0] == key[1] || key[0] == key[2]) ->
		forces++;
		revoked = revoked | BIT(key[0]);
		send(d, FORCE, key[0], 0)
	}
#else
	/* Pass: the holder is done, and the next client of the host has the same token. */
	:: d_step { passes < PASSES && phase[d] == HELD && deadline[d] && fence[d] < reserved[d] && since[d] < WINDOW ->
		passes++;
		pass_on(d)
	}
	/* FORCE: only a token that a quorum shows. The nodes note it, which ends its confirmations. */
	:: d_step { forces < FORCES && NO_CALLS(d) && NO_RELEASES(d) && key[0] && (key[0] == key[1] || key[0] == key[2]) ->
		forces++;
		forced = key[0]; noted = 0; deleted = 0; window = FORCE_WINDOW;
		revoked = revoked | BIT(forced);
		send(d, NOTE, forced, 0)
	}
	/* When no pass can follow, the key is deleted. */
	:: d_step { forced && MANY(noted) && window == 0 && NO_CALLS(d) && NO_RELEASES(d) ->
		noted = 0;
		send(d, FORCE, forced, 0)
	}
	:: d_step { forced && MANY(deleted) ->
		answered = answered | BIT(forced);
		forced = 0; noted = 0; deleted = 0; window = 0
	}
#endif
	od
}

inline set(n, t) { key[n] = t; ttl[n] = TTL }

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

#define FREE_FOR(n, t) ((key[n] == 0 || key[n] == t) && !(notes[n] & BIT(t)) && TIMELY(t))

/* Lane is one node's side of the calls of one daemon. Each step is one script. */
proctype Lane(byte d; byte n; byte k) {
	bit heard;
end:	do
	:: atomic { call[k] ->
		if :: heard = 1 :: losses < LOSSES -> losses++; heard = 0 fi;
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
			:: VOTES(d, n) && call[k] == RAISE && STILL_OURS(n, subject[k]) ->
				raise(n, argument[k]);
				if :: heard && phase[d] == WRITING_BACK && token[d] == subject[k] && GRANTED_BY(d, n) -> votes[d]++ :: else fi
			:: VOTES(d, n) && call[k] == EXTENSION && key[n] == subject[k] && !(notes[n] & BIT(subject[k])) ->
				set(n, subject[k]); /* TTL is the largest: this never shortens it */
				if :: heard && (extending & BIT(d)) && token[d] == subject[k] -> votes[d]++; confirmed[d] = confirmed[d] | BIT(n) :: else fi
			:: VOTES(d, n) && call[k] == REPAIR && key[n] == 0 && FREE_FOR(n, subject[k]) ->
				set(n, subject[k]);
				raise(n, argument[k])
			:: VOTES(d, n) && call[k] == FORCE ->
				notes[n] = notes[n] | BIT(subject[k]);
				if :: FORCES_KEY(n, subject[k]) -> key[n] = 0; ttl[n] = 0 :: else fi;
#if PASSES > 0
				if :: forced == subject[k] -> deleted = deleted | BIT(n) :: else fi
			:: VOTES(d, n) && call[k] == NOTE ->
				notes[n] = notes[n] | BIT(subject[k]);
				if :: heard && forced == subject[k] -> noted = noted | BIT(n) :: else fi
#endif
			:: else
			fi;
			executed(k);
			heard = 0
		}
	}
	:: d_step { released[k] && !call[k] ->
		if :: RELEASES(k, n) -> key[n] = 0; ttl[n] = 0 :: else fi;
		released[k] = 0; released2[k] = 0
	}
#if CRASHES + DEATHS > 0
	/* The daemon looks at the node. The first one that sees no epoch marks it as pending. */
	:: d_step { epoch[n] == 0 || (epoch[n] != known[k] && !(pending & BIT(n))) || (epoch[n] != marker[k] && (pending & BIT(n))) ->
		if
		:: epoch[n] == 0 -> words++; epoch[n] = words; pending = pending | BIT(n)
		:: else
		fi;
		copied[k] = 0; copy[k] = 0;
		if
		:: pending & BIT(n) -> known[k] = 0; marker[k] = epoch[n]; quarantine[k] = QUARANTINE
		:: else -> known[k] = epoch[n]; marker[k] = 0; quarantine[k] = 0
		fi
	}
	/* After the quarantine the counters of the others are read, one after the other. */
	:: d_step { marker[k] && MAY_COPY(d, n) && !(copied[k] & BIT((n + 1) % N)) && known[AT(d, (n + 1) % N)] &&
			known[AT(d, (n + 1) % N)] == epoch[(n + 1) % N] && !(pending & BIT((n + 1) % N)) ->
		copied[k] = copied[k] | BIT((n + 1) % N);
		copy[k] = (counter[(n + 1) % N] > copy[k] -> counter[(n + 1) % N] : copy[k])
	}
	:: d_step { marker[k] && MAY_COPY(d, n) && !(copied[k] & BIT((n + 2) % N)) && known[AT(d, (n + 2) % N)] &&
			known[AT(d, (n + 2) % N)] == epoch[(n + 2) % N] && !(pending & BIT((n + 2) % N)) ->
		copied[k] = copied[k] | BIT((n + 2) % N);
		copy[k] = (counter[(n + 2) % N] > copy[k] -> counter[(n + 2) % N] : copy[k])
	}
	/* One script: it compares the marker, raises the counter, and writes the epoch. */
	:: d_step { marker[k] && quarantine[k] == 0 && HAS_COPIES(d, n) && epoch[n] == marker[k] && (pending & BIT(n)) ->
		pending = pending & ~BIT(n);
		raise(n, copy[k]);
		known[k] = epoch[n]; marker[k] = 0; copied[k] = 0; copy[k] = 0
	}
#endif
	od
}

#define TICK(x) x = (x > 0 -> x - 1 : 0)

inline lose_data(n) {
	owes[n] = ttl[n]; key[n] = 0; ttl[n] = 0; counter[n] = 0; epoch[n] = 0; notes[n] = 0; pending = pending & ~BIT(n)
}

proctype Environment() {
end:	do
	:: d_step { true ->
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
#if PASSES > 0
		if :: MANY(noted) -> TICK(window) :: else fi;
#endif
		do
		:: i < D * N -> TICK(quarantine[i]); i++
		:: else -> break
		od;
		i = 0;
#ifdef FREE
		do
		:: i < ATTEMPTS -> i++; if :: over[i] && over[i] <= 2 * TTL -> over[i]++ :: else fi
		:: else -> break
		od;
		i = 0;
		assert(over[key[0]] <= 2 * TTL && over[key[1]] <= 2 * TTL && over[key[2]] <= 2 * TTL) /* becomes free */
#endif
	}
#if CRASHES > 0 /* nodes are alike, so the first crash is of node 0 */
	:: d_step { crashes < CRASHES -> crashes++; lose_data(0) }
#if CRASHES > 1
	:: d_step { crashes > 0 && crashes < CRASHES -> crashes++; lose_data(1) }
#endif
#endif
#if JUMPS > 0
	:: d_step { jumps < JUMPS -> jumps++; key[0] = 0; ttl[0] = 0 }
	:: d_step { jumps > 0 && jumps < JUMPS -> jumps++; key[1] = 0; ttl[1] = 0 }
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
