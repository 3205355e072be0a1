/* A lock on a single Redis: SET key token NX PX ttl, and a release that compares the token.
 *
 * It holds its properties while Redis keeps its data and its clock, and loses one of them if
 *   CRASHES=1    Redis restarts without its data                           one holder
 *   FAILOVERS=1  a replica takes over that has not received the key yet    one holder
 *   JUMPS=1      its clock jumps, so that the key expires early            one holder
 *   PAUSES=1     a holder pauses between its check and its write           stale write
 *
 * Time, bounds and simplifications are those of redlockd.pml.
 */

#define D 2

#ifndef TTL
#define TTL 2
#endif
#ifndef ATTEMPTS
#define ATTEMPTS 3
#endif
#ifndef CRASHES
#define CRASHES 0
#endif
#ifndef FAILOVERS
#define FAILOVERS 0
#endif
#ifndef JUMPS
#define JUMPS 0
#endif
#ifndef PAUSES
#define PAUSES 0
#endif

byte key, ttl;
byte copy, copyttl; /* what the replica has */

#define IDLE 0
#define ACQUIRING 1
#define HELD 2
#define WRITING 3 /* the client has looked at its deadline, and writes next */

byte phase[D];
byte token[D];
byte elapsed[D];
byte deadline[D];
byte call[D];     /* an acquire under way: the token; 0: none */
byte released[D]; /* a release behind it */
bool granted[D];

byte attempts, crashes, failovers, jumps, pauses;
byte grants, written;
byte order[D];

inline end_grant(d) {
	released[d] = token[d];
	phase[d] = IDLE; token[d] = 0; elapsed[d] = 0; deadline[d] = 0; order[d] = 0; granted[d] = false
}

#define HOLDS(d) (phase[d] >= HELD && deadline[d] > 0)

proctype Client(byte d) {
end:	do
	:: d_step { phase[d] == IDLE && attempts < ATTEMPTS && !released[d] && !call[d] ->
		attempts++;
		token[d] = attempts; phase[d] = ACQUIRING; call[d] = token[d]
	}
	:: d_step { phase[d] == ACQUIRING && granted[d] && elapsed[d] < TTL ->
		phase[d] = HELD;
		deadline[d] = TTL - elapsed[d];
		granted[d] = false; elapsed[d] = 0;
		grants++;
		order[d] = grants;
		assert(!(HOLDS(0) && HOLDS(1))) /* one holder */
	}
	:: d_step { phase[d] == ACQUIRING || phase[d] == HELD -> end_grant(d) }
	:: d_step { phase[d] == HELD && deadline[d] -> phase[d] = WRITING }
	:: d_step { phase[d] == WRITING && (deadline[d] || pauses < PAUSES) ->
		if :: deadline[d] == 0 -> pauses++ :: else fi;
		assert(order[d] >= written); /* stale write */
		written = order[d];
		phase[d] = HELD
	}
	:: d_step { phase[d] == WRITING && deadline[d] == 0 -> end_grant(d) }
	/* What Redis does for this client. */
	:: atomic { call[d] ->
		if
		:: d_step { key == 0 -> key = call[d]; ttl = TTL; granted[d] = (phase[d] == ACQUIRING && token[d] == call[d]) }
		:: d_step { key == 0 -> key = call[d]; ttl = TTL } /* the answer is lost */
		:: key != 0
		fi;
		call[d] = 0
	}
	:: d_step { released[d] && !call[d] ->
		if :: key == released[d] -> key = 0; ttl = 0 :: else fi;
		released[d] = 0
	}
	od
}

#define TICK(x) x = (x > 0 -> x - 1 : 0)

proctype Environment() {
end:	do
	:: d_step { true ->
		TICK(ttl); TICK(copyttl);
		if :: ttl == 0 -> key = 0 :: else fi;
		if :: copyttl == 0 -> copy = 0 :: else fi;
		TICK(deadline[0]); TICK(deadline[1]);
		if :: phase[0] == ACQUIRING && elapsed[0] < TTL -> elapsed[0]++ :: else fi;
		if :: phase[1] == ACQUIRING && elapsed[1] < TTL -> elapsed[1]++ :: else fi
	}
	:: d_step { crashes < CRASHES -> crashes++; key = 0; ttl = 0 }
	:: d_step { FAILOVERS && (copy != key || copyttl != ttl) -> copy = key; copyttl = ttl } /* replication */
	:: d_step { failovers < FAILOVERS -> failovers++; key = copy; ttl = copyttl }
	:: d_step { jumps < JUMPS -> jumps++; key = 0; ttl = 0 }
	od
}

init { atomic { run Client(0); run Client(1); run Environment() } }
